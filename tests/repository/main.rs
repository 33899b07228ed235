//! The repository itself, without the program: the structure of the code, the documents and their translations.

#![expect(clippy::unwrap_used, reason = "test helpers may panic, too")]

#[path = "../support/markdown.rs"]
mod markdown;

mod architecture;
mod documents;
mod translations;
