//! Tests of whole graphs: building, counting, rewriting, writing, reading, and malformed files.

#![expect(clippy::unwrap_used, reason = "a test that cannot create its files fails")]

mod bad_files;
mod building;
mod diff;
mod gguf;
mod hostile;
mod layers;
mod networks;
mod precision;
mod pth;
mod round_trip;
mod sharded;
