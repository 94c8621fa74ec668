// Plays the replay that stands in the page. The only global it makes is
//   silico.steps          number of frames
//   silico.frame          the frame shown
//   silico.show(k)        show frame k and stop playing
//   silico.body(i)        {position, orientation (w, x, y, z), visible} of body i as drawn
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
  const center = vector(data.low).add(vector(data.high)).multiplyScalar(0.5);
  const radius = Math.max(vector(data.high).distanceTo(vector(data.low)) / 2, 1e-9);
  const up = vector(data.up);

  // ---------------------------------------------------------------- reading

  function floats(text) {
    return new Float32Array(bytes(text).buffer);
  }

  function bytes(text) {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  }

  function readReplay(raw) {
    for (const name of ["position", "orientation"]) raw[name] = floats(raw[name]);
    raw.visible = bytes(raw.visible);
    for (const name of ["alpha", "point", "force"]) raw.contacts[name] = floats(raw.contacts[name]);
    for (const piece of raw.pieces) {
      piece.geometry = new THREE.BufferGeometry();
      piece.geometry.setAttribute("position", new THREE.BufferAttribute(floats(piece.vertices), 3));
      const triangles = new Uint32Array(bytes(piece.triangles).buffer);
      piece.geometry.setIndex(new THREE.BufferAttribute(triangles, 1));
      piece.geometry.computeVertexNormals();
    }
    return raw;
  }

  // A row of an array of shape (steps, count, width).
  function row(array, frame, count, index, width) {
    const start = (frame * count + index) * width;
    return array.subarray(start, start + width);
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
  const points = data.contacts.names.map(makePoint);
  const arrows = data.contacts.names.map(makeArrow);
  const shells = data.contacts.names.map((_, contact) => makeShells(contact));

  // Two horizontal axes, of a right-handed frame with `axis`.
  function sideways(axis) {
    const first = Math.abs(axis.x) > 0.9 ? new THREE.Vector3(0, 1, 0) : new THREE.Vector3(1, 0, 0);
    first.addScaledVector(axis, -first.dot(axis)).normalize();
    return [first, axis.clone().cross(first)];
  }

  // A point given in units of the radius, along the two horizontal axes and up, from the centre.
  function around(x, y, z) {
    const [right, back] = sideways(up);
    return center.clone().addScaledVector(right, x * radius).addScaledVector(back, y * radius)
      .addScaledVector(up, z * radius);
  }

  function addLights() {
    const sky = new THREE.HemisphereLight("#ffffff", "#b7b3ab", 1.7);
    sky.position.copy(up);
    const sun = new THREE.DirectionalLight("#fff8ee", 1.9);
    sun.position.copy(around(1.6, -1.2, 3.2));
    sun.target.position.copy(center);
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
    const normal = vector(plane.normal);
    const level = normal.dot(up) > 0.7;
    const size = (level ? 60 : 3) * radius;
    const material = new THREE.MeshStandardMaterial({
      map: gridTexture(size), roughness: 1, transparent: !level, opacity: level ? 1 : 0.6,
    });
    const mesh = new THREE.Mesh(new THREE.PlaneGeometry(size, size), material);
    mesh.quaternion.setFromUnitVectors(new THREE.Vector3(0, 0, 1), normal);
    const height = center.clone().sub(vector(plane.point)).dot(normal);
    mesh.position.copy(center).addScaledVector(normal, -height);
    mesh.receiveShadow = true;
    world.add(mesh);
  }

  // Squares of 1, 2 or 5 times a power of ten [m], about ten across the view.
  function gridTexture(size) {
    const goal = radius / 4, power = 10 ** Math.floor(Math.log10(goal));
    const cell = power * [5, 2, 1].find((step) => step * power <= goal);
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
    texture.repeat.set(size / cell, size / cell);
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

  function makePoint() {
    const shape = new THREE.SphereGeometry(0.014 * radius, 16, 12);
    const mesh = overlay(new THREE.Mesh(shape, new THREE.MeshBasicMaterial({ color: POINT })), 12);
    world.add(mesh);
    return mesh;
  }

  // Along +y from the origin, one unit long before it is scaled.
  function makeArrow() {
    const material = new THREE.MeshStandardMaterial({ color: FORCE, roughness: 0.5 });
    const thick = 0.011 * radius, tip = 5 * thick;
    const shaft = new THREE.Mesh(new THREE.CylinderGeometry(thick, thick, 1, 16), material);
    const head = new THREE.Mesh(new THREE.ConeGeometry(2.2 * thick, tip, 20), material);
    const group = new THREE.Group();
    group.add(overlay(shaft, 10), overlay(head, 11));
    group.userData = { shaft, head, tip };
    world.add(group);
    return group;
  }

  function makeShells(contact) {
    const ends = [data.contacts.first[contact], data.contacts.second[contact]];
    return ends.filter((index) => index >= 0).map((index) => {
      const piece = data.pieces[index];
      const mesh = pieceMesh(piece, {
        color: SHELL, transparent: true, opacity: 0.16, depthWrite: false,
      });
      mesh.add(outline(piece, SHELL, 0.9));
      mesh.userData.piece = index;
      // Placed like its piece, inside a group that moves like its body.
      const group = new THREE.Group();
      group.add(mesh);
      group.userData = { mesh, body: piece.body };
      group.visible = false;
      world.add(group);
      return group;
    });
  }

  // ---------------------------------------------------------------- one frame

  let frame = 0;

  function show(index) {
    frame = Math.min(Math.max(Math.round(index), 0), data.steps - 1);
    bodies.forEach((group, body) => place(group, body));
    for (const contact of data.contacts.names.keys()) showContact(contact);
    showShells();
    showText();
    draw();
  }

  function place(group, body) {
    const count = data.names.length;
    group.visible = data.visible[frame * count + body] === 1;
    if (!group.visible) return;
    group.position.set(...row(data.position, frame, count, body, 3));
    const [w, x, y, z] = row(data.orientation, frame, count, body, 4);
    group.quaternion.set(x, y, z, w);
  }

  function contactRow(name, contact, width) {
    return row(data.contacts[name], frame, data.contacts.names.length, contact, width);
  }

  function showContact(contact) {
    const force = vector(contactRow("force", contact, 3));
    const point = vector(contactRow("point", contact, 3));
    const newtons = force.length();
    const length = newtons * data.arrow_scale;
    const active = length >= data.smallest_arrow && point.toArray().every(Number.isFinite);
    points[contact].visible = active && element("points").checked;
    arrows[contact].visible = active && element("forces").checked;
    if (!active) return;
    points[contact].position.copy(point);
    layArrow(arrows[contact], point, force.divideScalar(newtons), length);
  }

  function layArrow(arrow, point, direction, length) {
    const { shaft, head, tip } = arrow.userData;
    const shown = Math.min(length, data.longest_arrow);
    const headLength = Math.min(tip, shown / 2);
    arrow.position.copy(point);
    arrow.quaternion.setFromUnitVectors(new THREE.Vector3(0, 1, 0), direction);
    shaft.scale.y = shown - headLength;
    shaft.position.y = shaft.scale.y / 2;
    head.scale.setScalar(headLength / tip);
    head.position.y = shown - headLength / 2;
    shaft.material.color.set(length > shown ? CUT : FORCE);
    arrow.userData.tips = [point.toArray(), point.clone().addScaledVector(direction, shown).toArray()];
  }

  function showShells() {
    const wanted = element("scaled").checked ? element("which").value : "none";
    shells.forEach((pair, contact) => {
      const [alpha] = contactRow("alpha", contact, 1);
      const chosen = wanted === String(contact) || (wanted === "touching" && isTouching(contact));
      for (const group of pair) {
        const { mesh, body } = group.userData;
        if (body !== null) place(group, body);
        else group.visible = true;
        group.visible &&= chosen && Number.isFinite(alpha) && alpha > 0;
        if (group.visible) mesh.scale.setScalar(alpha);
      }
    });
  }

  function isTouching(contact) {
    const newtons = vector(contactRow("force", contact, 3)).length();
    return newtons * data.arrow_scale >= data.smallest_arrow;
  }

  function showText() {
    const time = ((frame + 1) * data.timestep).toFixed(data.timestep < 0.01 ? 3 : 2);
    element("clock").textContent = `${time} s  ·  ${frame + 1} / ${data.steps}`;
    element("scrubber").value = frame;
    const note = data.notes[frame];
    element("banner").hidden = !note;
    element("banner").textContent = note || "";
    const touching = [...data.contacts.names.keys()].filter(isTouching);
    const forces = touching.map((contact) => vector(contactRow("force", contact, 3)).length());
    element("readout").textContent = touching.length
      ? `${touching.length} touching, up to ${Math.max(...forces).toPrecision(3)} N` : "no contact";
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
    // In a narrow window the width decides how far back the camera must stand.
    const half = Math.atan(Math.tan((FIELD * Math.PI) / 360) * Math.min(camera.aspect, 1));
    const direction = around(0.75, -1.0, 0.5).sub(center).normalize();
    camera.position.copy(center).addScaledVector(direction, (0.9 * radius) / Math.sin(half));
    controls.target.copy(center);
    controls.update();
    draw();
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
      const x = thumb / 2 + (room * Number(step)) / Math.max(data.steps - 1, 1);
      pen.fillRect(x - 1, 0, 2, canvas.height);
    }
  }

  // ---------------------------------------------------------------- playing

  let playing = false, clock = 0, last = 0;

  function setPlaying(on) {
    playing = on;
    element("play").textContent = on ? "❚❚" : "▶";
    if (!on) return;
    if (frame === data.steps - 1) show(0);
    clock = frame * data.timestep;
    last = performance.now();
    requestAnimationFrame(advance);
  }

  function advance(now) {
    if (!playing) return;
    clock += Math.max(now - last, 0) / 1000 * Number(element("speed").value);
    last = now;
    const next = Math.min(Math.floor(clock / data.timestep + 1e-6), data.steps - 1);
    if (next !== frame) show(next);
    if (next === data.steps - 1) setPlaying(false);
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
    element("scrubber").max = data.steps - 1;
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
  connect();
  resize();
  home();
  show(0);

  return {
    steps: data.steps,
    get frame() { return frame; },
    show: jump,
    body(index) {
      const { position, quaternion: q, visible } = bodies[index];
      return { position: position.toArray(), orientation: [q.w, q.x, q.y, q.z], visible };
    },
    arrows: () => arrows.filter((arrow) => arrow.visible).map((arrow) => arrow.userData.tips),
    scaledSets: () => shells.flat().filter((group) => group.visible)
      .map(({ userData: { mesh } }) => ({ piece: mesh.userData.piece, alpha: mesh.scale.x })),
  };
})();
