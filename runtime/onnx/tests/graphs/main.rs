//! Whole graphs: built, counted, rewritten, written, read, and files that are not what they should be.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its files fails")]

mod bad_files;
mod building;
mod hostile;
mod networks;
mod precision;
mod round_trip;
