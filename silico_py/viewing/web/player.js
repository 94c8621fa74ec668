// Plays the replay that stands in the page. The only global it makes is
//   silico.frames         number of frames, the start and one a step
//   silico.frame          the frame shown
//   silico.show(k)        show frame k and stop playing
//   silico.body(i)        {position, orientation (w, x, y, z), visible} of body i as drawn, world
//   silico.arrows()       [[start, tip], ...] of the force arrows drawn, world [m]
//   silico.scaledSets()   [{piece, alpha}, ...] drawn
// for scripts and tests. Everything else is private.
const silico = (() => {
  "use strict";
  const BACKGROUND = "#eef1f5", GROUND = "#e6e8ea", LINE = "#b9c0c8", FIXTURE = "#8b95a1";
  const POINT = "#1d1d1f", FORCE = "#d6336c", CUT = "#7b1fa2", SHELL = "#f2a900";
  const FIELD = 35; // of view [degrees]
  const element = (id) => document.getElementById(id);
  const data = readReplay(JSON.parse(element("replay").textContent));
  const vector = (values) => new THREE.Vector3(...values);
  // Everything is drawn about the middle of the view; `inWorld` leads back.
  const radius = Math.max(vector(data.reach).length(), 1e-9);
  const up = vector(data.up), view = vector(data.view_direction);

  // ---------------------------------------------------------------- reading

  function floats(text) {
    return new Float32Array(bytes(text).buffer);
  }

  function integers(text) {
    return new Uint32Array(bytes(text).buffer);
  }

  function bytes(text) {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  }

  function readReplay(raw) {
    for (const name of ["position", "orientation"]) raw[name] = floats(raw[name]);
    raw.visible = bytes(raw.visible);
    raw.contacts.alpha = floats(raw.contacts.alpha);
    for (const name of ["start", "contact"]) raw.touching[name] = integers(raw.touching[name]);
    for (const name of ["point", "force"]) raw.touching[name] = floats(raw.touching[name]);
    for (const piece of raw.pieces) {
      piece.geometry = new THREE.BufferGeometry();
      piece.geometry.setAttribute("position", new THREE.BufferAttribute(floats(piece.vertices), 3));
      piece.geometry.setIndex(new THREE.BufferAttribute(integers(piece.triangles), 1));
      piece.geometry.computeVertexNormals();
    }
    return raw;
  }

  // Row `index` of an array of this width.
  function row(array, index, width) {
    return array.subarray(index * width, (index + 1) * width);
  }

  function inWorld(point) {
    return point.toArray().map((value, axis) => value + data.center[axis]);
  }

  // ---------------------------------------------------------------- the world

  const world = new THREE.Scene();
  world.background = new THREE.Color(BACKGROUND);
  world.fog = new THREE.Fog(BACKGROUND, 8 * radius, 28 * radius);
  const camera = new THREE.PerspectiveCamera(FIELD, 1, radius / 200, radius * 200);
  camera.up.copy(up);
  const renderer = new THREE.WebGLRenderer({ canvas: element("canvas"), antialias: true });
  renderer.shadowMap.enabled = true;
  renderer.shadowMap.type = THREE.PCFShadowMap;
  const controls = new THREE.OrbitControls(camera, renderer.domElement);
  controls.maxDistance = 60 * radius;
  controls.addEventListener("change", draw);

  addLights();
  data.planes.forEach(addPlane);
  const bodies = data.names.map((_, index) => makeBody(index));
  data.pieces.filter((piece) => piece.body === null).forEach(addFixture);
  // Made when first wanted: a scene may have thousands of pairs, few of which touch.
  const markers = [];
  const shells = new Map();
  const thick = 0.011 * radius, headLength = 5 * thick;
  const shapes = {
    point: new THREE.SphereGeometry(0.014 * radius, 16, 12),
    shaft: new THREE.CylinderGeometry(thick, thick, 1, 16),
    head: new THREE.ConeGeometry(2.2 * thick, headLength, 20),
  };

  function addLights() {
    const sky = new THREE.HemisphereLight("#ffffff", "#b7b3ab", 1.7);
    sky.position.copy(up);
    const sun = new THREE.DirectionalLight("#fff8ee", 1.9);
    // From over the viewer's shoulder, high enough for short shadows.
    sun.position.copy(up).multiplyScalar(2.6 * radius).addScaledVector(view, 1.8 * radius)
      .addScaledVector(view.clone().cross(up), -1.2 * radius);
    sun.castShadow = true;
    sun.shadow.mapSize.set(2048, 2048);
    sun.shadow.normalBias = radius / 400;
    sun.shadow.radius = 3;
    const reach = 1.6 * radius;
    Object.assign(sun.shadow.camera, {
      left: -reach, right: reach, top: reach, bottom: -reach, near: radius / 10, far: 8 * radius,
    });
    world.add(sky, sun, sun.target);
  }

  function addPlane(plane) {
    const normal = vector(plane.normal), size = 2 * plane.extent;
    const material = new THREE.MeshStandardMaterial({
      map: gridTexture(size), roughness: 1, transparent: !plane.level, opacity: plane.level ? 1 : 0.6,
    });
    const mesh = new THREE.Mesh(new THREE.PlaneGeometry(size, size), material);
    mesh.quaternion.setFromUnitVectors(new THREE.Vector3(0, 0, 1), normal);
    mesh.position.copy(normal).multiplyScalar(vector(plane.point).dot(normal));
    mesh.receiveShadow = true;
    world.add(mesh);
  }

  function gridTexture(size) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 256;
    const pen = tile.getContext("2d");
    pen.fillStyle = GROUND;
    pen.fillRect(0, 0, 256, 256);
    pen.strokeStyle = LINE;
    pen.lineWidth = 5;
    pen.strokeRect(0, 0, 256, 256);
    const texture = new THREE.CanvasTexture(tile);
    texture.wrapS = texture.wrapT = THREE.RepeatWrapping;
    texture.repeat.set(size / data.grid_cell, size / data.grid_cell);
    texture.colorSpace = THREE.SRGBColorSpace;
    texture.anisotropy = renderer.capabilities.getMaxAnisotropy();
    return texture;
  }

  function pieceMesh(piece, options) {
    const material = new THREE.MeshStandardMaterial({ roughness: 0.55, ...options });
    const mesh = new THREE.Mesh(piece.geometry, material);
    mesh.position.set(...piece.reference);
    return mesh;
  }

  function outline(piece, color, opacity) {
    const material = new THREE.LineBasicMaterial({ color, transparent: true, opacity });
    return new THREE.LineSegments(new THREE.EdgesGeometry(piece.geometry, 35), material);
  }

  function makeBody(index) {
    const group = new THREE.Group();
    for (const piece of data.pieces.filter((candidate) => candidate.body === index)) {
      const mesh = pieceMesh(piece, { color: data.colors[index] });
      mesh.castShadow = mesh.receiveShadow = true;
      mesh.add(outline(piece, "#000000", 0.25));
      group.add(mesh);
    }
    world.add(group);
    return group;
  }

  function addFixture(piece) {
    const mesh = pieceMesh(piece, {
      color: FIXTURE, transparent: true, opacity: 0.22, depthWrite: false,
    });
    mesh.add(outline(piece, "#3c4550", 0.6));
    world.add(mesh);
  }

  // Drawn over everything: a contact lies between surfaces, where it would be hidden.
  function overlay(mesh, order) {
    Object.assign(mesh.material, { depthTest: false, transparent: true, fog: false });
    mesh.renderOrder = order;
    return mesh;
  }

  // The point and the arrow of one contact; the arrow runs along +y from the origin.
  function marker(index) {
    if (index < markers.length) return markers[index];
    const ink = new THREE.MeshStandardMaterial({ color: FORCE, roughness: 0.5 });
    const dot = new THREE.MeshBasicMaterial({ color: POINT });
    const made = { arrow: new THREE.Group(), point: overlay(new THREE.Mesh(shapes.point, dot), 12) };
    made.shaft = overlay(new THREE.Mesh(shapes.shaft, ink), 10);
    made.head = overlay(new THREE.Mesh(shapes.head, ink), 11);
    made.arrow.add(made.shaft, made.head);
    world.add(made.arrow, made.point);
    markers.push(made);
    return made;
  }

  function contactShells(contact) {
    if (!shells.has(contact)) {
      const ends = [data.contacts.first[contact], data.contacts.second[contact]];
      shells.set(contact, ends.filter((piece) => piece >= 0).map(makeShell));
    }
    return shells.get(contact);
  }

  // A copy of a piece to be scaled about its reference, in a group that moves like its body.
  function makeShell(index) {
    const piece = data.pieces[index];
    const mesh = pieceMesh(piece, {
      color: SHELL, transparent: true, opacity: 0.3, depthWrite: false,
      // In front of the piece itself, with which it coincides at alpha = 1.
      polygonOffset: true, polygonOffsetFactor: -2, polygonOffsetUnits: -2,
    });
    mesh.add(outline(piece, SHELL, 1));
    const group = new THREE.Group();
    group.add(mesh);
    world.add(group);
    return { group, mesh, piece: index, body: piece.body };
  }

  // ---------------------------------------------------------------- one frame

  let frame = 0;

  function show(index) {
    frame = Math.min(Math.max(Math.round(index), 0), data.frames - 1);
    bodies.forEach((group, body) => place(group, body));
    const touching = touchingContacts();
    showMarkers(touching);
    showShells(touching);
    showText(touching);
    draw();
  }

  function place(group, body) {
    const index = frame * data.names.length + body;
    group.visible = data.visible[index] === 1;
    if (!group.visible) return;
    group.position.set(...row(data.position, index, 3));
    const [w, x, y, z] = row(data.orientation, index, 4);
    group.quaternion.set(x, y, z, w);
  }

  // {contact, point, newtons, direction} of every contact whose force is drawn.
  function touchingContacts() {
    const { start, contact, point, force } = data.touching, found = [];
    for (let k = start[frame]; k < start[frame + 1]; k++) {
      const direction = vector(row(force, k, 3)), newtons = direction.length();
      direction.divideScalar(newtons);
      found.push({ contact: contact[k], point: vector(row(point, k, 3)), newtons, direction });
    }
    return found;
  }

  function showMarkers(touching) {
    touching.forEach((contact, index) => layMarker(marker(index), contact));
    markers.forEach(({ point, arrow }, index) => {
      point.visible = index < touching.length && element("points").checked;
      arrow.visible = index < touching.length && element("forces").checked;
    });
  }

  function layMarker(marker, { point, newtons, direction }) {
    const length = newtons * data.arrow_scale, shown = Math.min(length, data.longest_arrow);
    const head = Math.min(headLength, shown / 2);
    marker.point.position.copy(point);
    marker.arrow.position.copy(point);
    marker.arrow.quaternion.setFromUnitVectors(new THREE.Vector3(0, 1, 0), direction);
    marker.shaft.scale.y = shown - head;
    marker.shaft.position.y = (shown - head) / 2;
    marker.head.scale.setScalar(head / headLength);
    marker.head.position.y = shown - head / 2;
    marker.shaft.material.color.set(length > shown ? CUT : FORCE);
    marker.ends = [inWorld(point), inWorld(point.clone().addScaledVector(direction, shown))];
  }

  function showShells(touching) {
    for (const { group } of [...shells.values()].flat()) group.visible = false;
    if (!element("scaled").checked) return;
    const which = element("which").value;
    const chosen = which === "touching" ? touching.map(({ contact }) => contact) : [Number(which)];
    for (const contact of chosen) {
      const alpha = data.contacts.alpha[frame * data.contacts.names.length + contact];
      if (Number.isFinite(alpha) && alpha > 0) {
        contactShells(contact).forEach((shell) => placeShell(shell, alpha));
      }
    }
  }

  function placeShell({ group, mesh, body }, alpha) {
    if (body === null) group.visible = true;
    else place(group, body);
    mesh.scale.setScalar(alpha);
  }

  function showText(touching) {
    const time = (frame * data.timestep).toFixed(data.decimals);
    element("clock").textContent = `${time} s  ·  ${frame} / ${data.frames - 1}`;
    element("scrubber").value = frame;
    const note = data.notes[frame];
    element("banner").hidden = !note;
    element("banner").textContent = note || "";
    const largest = touching.reduce((most, { newtons }) => Math.max(most, newtons), 0);
    element("readout").textContent = touching.length
      ? `${touching.length} touching, up to ${largest.toPrecision(3)} N` : "no contact";
  }

  // ---------------------------------------------------------------- camera and drawing

  let drawing = false;

  function draw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      renderer.render(world, camera);
    });
  }

  function resize() {
    const { clientWidth: width, clientHeight: height } = document.documentElement;
    renderer.setPixelRatio(Math.min(window.devicePixelRatio, 2));
    renderer.setSize(width, height, false);
    camera.aspect = width / Math.max(height, 1);
    camera.updateProjectionMatrix();
    drawMarks();
    draw();
  }

  function home() {
    camera.position.copy(view).multiplyScalar(cameraDistance());
    controls.target.set(0, 0, 0);
    controls.update();
    draw();
  }

  // From where the box of the motion fills the window, short of the bar below.
  function cameraDistance() {
    const right = up.clone().cross(view).normalize(), top = view.clone().cross(right);
    const half = Math.tan((FIELD * Math.PI) / 360);
    let distance = 1.5 * radius;
    for (const corner of boxCorners()) {
      const ahead = corner.dot(view);
      const across = Math.abs(corner.dot(right)) / (half * camera.aspect);
      const along = Math.abs(corner.dot(top)) / (0.82 * half);
      distance = Math.max(distance, ahead + across, ahead + along);
    }
    return distance;
  }

  function boxCorners() {
    const reach = vector(data.reach), signs = [-1, 1];
    return signs.flatMap((x) => signs.flatMap((y) => signs.map((z) =>
      new THREE.Vector3(x, y, z).multiply(reach))));
  }

  // Where steps failed, under the scrubber.
  function drawMarks() {
    const canvas = element("marks");
    canvas.width = canvas.clientWidth;
    canvas.height = canvas.clientHeight;
    const pen = canvas.getContext("2d");
    pen.fillStyle = "#c0262d";
    const thumb = 16, room = canvas.width - thumb;
    for (const step of Object.keys(data.notes)) {
      const x = thumb / 2 + (room * Number(step)) / Math.max(data.frames - 1, 1);
      pen.fillRect(x - 1, 0, 2, canvas.height);
    }
  }

  // ---------------------------------------------------------------- playing

  let playing = false, clock = 0, last = 0;

  function setPlaying(on) {
    playing = on;
    element("play").textContent = on ? "❚❚" : "▶";
    if (!on) return;
    if (frame === data.frames - 1) show(0);
    clock = frame * data.timestep;
    last = performance.now();
    requestAnimationFrame(advance);
  }

  function advance(now) {
    if (!playing) return;
    clock += Math.max(now - last, 0) / 1000 * Number(element("speed").value);
    last = now;
    const next = Math.min(Math.floor(clock / data.timestep + 1e-6), data.frames - 1);
    if (next !== frame) show(next);
    if (next === data.frames - 1) setPlaying(false);
    else requestAnimationFrame(advance);
  }

  function jump(index) {
    setPlaying(false);
    show(index);
  }

  function onKey(event) {
    if (event.target.tagName === "SELECT") return;
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key === " ") setPlaying(!playing);
    else if (event.key in moves) jump(frame + moves[event.key]);
    else return;
    event.preventDefault();
  }

  // ---------------------------------------------------------------- the panel

  function listBodies() {
    data.names.forEach((name, index) => {
      const item = document.createElement("li");
      const dot = document.createElement("i");
      dot.style.background = data.colors[index];
      item.append(dot, name);
      element("bodies").append(item);
    });
  }

  function countFailures() {
    const failed = Object.keys(data.notes).length;
    element("failures").hidden = failed === 0;
    element("failures").textContent = `${failed} of ${data.frames - 1} steps failed`;
  }

  function listContacts() {
    const choices = [["touching", "every touching pair"], ...data.contacts.names.entries()];
    for (const [value, text] of choices) element("which").append(new Option(text, value));
  }

  function setGlass() {
    for (const { material } of bodies.flatMap((group) => group.children)) {
      material.transparent = element("glass").checked;
      material.opacity = material.transparent ? 0.45 : 1;
      material.depthWrite = !material.transparent;
      material.needsUpdate = true;
    }
    draw();
  }

  function connect() {
    element("scrubber").max = data.frames - 1;
    element("scrubber").addEventListener("input", (event) => jump(Number(event.target.value)));
    element("play").addEventListener("click", () => setPlaying(!playing));
    element("home").addEventListener("click", home);
    element("glass").addEventListener("change", setGlass);
    for (const id of ["points", "forces", "which"]) {
      element(id).addEventListener("change", () => show(frame));
    }
    element("scaled").addEventListener("change", () => {
      element("which").hidden = !element("scaled").checked;
      show(frame);
    });
    window.addEventListener("keydown", onKey);
    window.addEventListener("resize", resize);
  }

  listBodies();
  listContacts();
  countFailures();
  connect();
  resize();
  home();
  show(0);

  return {
    frames: data.frames,
    get frame() { return frame; },
    show: jump,
    body(index) {
      const { position, quaternion: q, visible } = bodies[index];
      return { position: inWorld(position), orientation: [q.w, q.x, q.y, q.z], visible };
    },
    arrows: () => markers.filter(({ arrow }) => arrow.visible).map(({ ends }) => ends),
    scaledSets: () => [...shells.values()].flat().filter(({ group }) => group.visible)
      .map(({ piece, mesh }) => ({ piece, alpha: mesh.scale.x })),
  };
})();
