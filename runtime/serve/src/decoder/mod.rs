//! The decoder of a language model: one graph with a cache of fixed length, which reads tokens of several rows and returns the
//! next token of each row, or its scores.
//!
//! The place of a token in the cache is its position, so that nothing is padded: a token sees the places up to its own.
//! What a run writes behind the last token of a row is invisible until it is overwritten. Knows no text and no request.

mod graph;
mod session;

pub use graph::DecoderGraph;
pub use session::DecoderSession;

/// The tokens of a run, `N,S,i64`.
pub const INPUT_IDS: &str = "input_ids";
/// The position of each of them, `N,S,i64`.
pub const POSITION_IDS: &str = "position_ids";
/// A 1 for each place of the cache that has or will have a token, `N,LENGTH,i64`.
pub const ATTENTION_MASK: &str = "attention_mask";
/// The place of the cache that is written first, `N,i64`.
pub const FIRST: &str = "first";
/// The most probable next token, `N,1,i64`.
pub const TOKEN: &str = "token";
/// The scores of all tokens, `N,1,VOCABULARY`.
pub const LOGITS: &str = "logits";
/// How the names of the cache begin, before and after a run.
pub const PAST: &str = "past.";
pub const PRESENT: &str = "present.";
