//! gRPC: the calls, their messages as frames, and requests and answers as messages.

mod answers;
mod calls;
mod contents;
mod frames;
mod infer;
mod message_limits;
mod replies;
mod stream;
mod unread;

pub use calls::answer;
pub use infer::read_request;
pub use unread::UnreadAnswers;
