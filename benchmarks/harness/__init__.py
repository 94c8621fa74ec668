"""What every benchmark shares: batched runs, timing, JSON with the machine."""

from benchmarks.harness.batches import batch_of as batch_of
from benchmarks.harness.batches import divided as divided
from benchmarks.harness.batches import members as members
from benchmarks.harness.batches import over_devices as over_devices
from benchmarks.harness.batches import retimed as retimed
from benchmarks.harness.records import FOLDER as FOLDER
from benchmarks.harness.records import colored as colored
from benchmarks.harness.records import save as save
from benchmarks.harness.records import track as track
from benchmarks.harness.robustness import SAMPLES as SAMPLES
from benchmarks.harness.robustness import cases as cases
from benchmarks.harness.robustness import cell as cell
from benchmarks.harness.robustness import counted as counted
from benchmarks.harness.robustness import drops_on_floor as drops_on_floor
from benchmarks.harness.robustness import failures as failures
from benchmarks.harness.robustness import key as key
from benchmarks.harness.robustness import runner as runner
from benchmarks.harness.robustness import total as total
from benchmarks.harness.timing import alternate as alternate
from benchmarks.harness.timing import compiled as compiled
from benchmarks.harness.timing import cores as cores
from benchmarks.harness.timing import free_memory as free_memory
from benchmarks.harness.timing import median_seconds as median_seconds
from benchmarks.harness.timing import program_memory as program_memory
