# The commands of this repository; `just` alone lists them.

_list:
    @just --list --unsorted

# Run ResNet-50 end to end on this machine's processor.
run *options:
    cargo run --release -- run --case resnet50 {{ options }}

# Show every value of a run with the file and line of its origin, without running it.
plan *options:
    cargo run --release -- plan {{ options }}

# Run every test and say what this machine skipped, and why.
test *filter:
    tests/run {{ filter }}

# Run the unit tests of one crate: `just unit plan` for flagperf-plan.
unit crate *filter:
    cargo test -p flagperf-{{ crate }} {{ filter }}

# Run the checks that must pass before a commit.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Run everything that CI runs.
ci:
    bash .ci/run

# Fuzz every parser, or the given targets, for so many seconds each (compiles for long).
fuzz seconds="60" *targets:
    tests/fuzz/run {{ seconds }} {{ targets }}

# Create the reference vectors of tests/reference; its README.md lists the Python packages that each script needs.
reference python="python3":
    {{ python }} tests/reference/make_resnet50.py
    {{ python }} tests/reference/make_models.py
    {{ python }} tests/reference/make_pixels.py
    {{ python }} tests/reference/make_detections.py
    {{ python }} tests/reference/make_gguf.py
    {{ python }} tests/reference/make_spans.py

# Build the program for images with glibc 2.28 or later; needs cargo-zigbuild, and zig from the Python package `ziglang`.
portable:
    cargo zigbuild --release --target x86_64-unknown-linux-gnu.2.28

# Check the licences and advisories of all dependencies; needs cargo-deny.
deny:
    cargo deny check
