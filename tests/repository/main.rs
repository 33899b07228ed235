//! The repository itself, without the program: the structure of the code, the documents and their translations.

#[path = "../support/markdown.rs"]
mod markdown;

mod architecture;
mod documents;
mod translations;
