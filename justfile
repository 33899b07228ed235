# The commands of this repository; `just` alone lists them.

_list:
    @just --list --unsorted

# The main job: ResNet-50 end to end on this machine's processor.
run *options:
    cargo run --release -- run --case resnet50 {{ options }}

# What a run would do: every value with the file and line it comes from.
plan *options:
    cargo run --release -- plan {{ options }}

# Every test; says what this machine left out.
test *filter:
    tests/run {{ filter }}

# What must be clean before a commit.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Everything that CI does.
ci:
    bash .ci/run

# Every test, with the second pure-Rust compiler, too (compiles for minutes).
tract:
    tests/run --features tract

# The reference vectors of tests/reference; needs a Python with its requirements.txt.
reference python="python3":
    {{ python }} tests/reference/make_resnet50.py
    {{ python }} tests/reference/make_pixels.py

# Licences and advisories of everything that is built in; needs cargo-deny.
deny:
    cargo deny check
