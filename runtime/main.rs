//! The program `flagperf`.

fn main() {}
