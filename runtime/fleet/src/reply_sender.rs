//! Writes the replies of an agent in a thread of its own, so that nothing the agent says waits for files. Replies, the
//! commands to a session and the files of a result have a thread each, and a reply overtakes parts of files. Otherwise
//! a slow connection would look like a lost host, and workers would pass a barrier seconds apart.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select_biased};

use super::frame::write_frame;
use super::protocol::Reply;

/// Largest number of replies that wait to be written.
const REPLIES_WAITING_MAX: usize = 1024;

/// Longest time in which the last replies are written.
const FINISH_TIME_MAX: Duration = Duration::from_secs(5);

/// The sender of replies. The thread ends when the output fails, or after [`Writer::finish`].
#[derive(Clone, Debug)]
pub(super) struct ReplySender {
    /// `None` is the last message.
    replies: Sender<Option<Reply>>,
    parts: Sender<(Reply, Vec<u8>)>,
}

/// The thread that writes.
pub(super) struct Writer {
    replies: Sender<Option<Reply>>,
    /// Disconnects when the thread has ended.
    done: Receiver<()>,
}

impl Writer {
    /// Waits until every reply that was sent before is written, but not for long if the connection is broken.
    pub(super) fn finish(self) {
        if self.replies.send_timeout(None, FINISH_TIME_MAX).is_ok() {
            let _ = self.done.recv_timeout(FINISH_TIME_MAX);
        }
    }
}

impl ReplySender {
    /// Starts the thread that writes to `output`.
    pub(super) fn start(output: impl Write + Send + 'static) -> (Self, Writer) {
        let (replies, waiting_replies) = bounded(REPLIES_WAITING_MAX);
        // Without a place to wait: a thread that has sent all parts of a file can send the reply that follows them.
        let (parts, waiting_parts) = bounded(0);
        let (running, done) = bounded::<()>(0);
        thread::spawn(move || {
            // An error ends the thread; the senders then fail.
            let _ = write_all(output, &waiting_replies, &waiting_parts);
            drop(running);
        });
        (ReplySender { replies: replies.clone(), parts }, Writer { replies, done })
    }

    /// Sends a reply without payload.
    pub(super) fn send(&self, reply: Reply) -> io::Result<()> {
        self.replies.send(Some(reply)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Sends a part of a file, after every reply that waits.
    pub(super) fn send_part(&self, reply: Reply, part: &[u8]) -> io::Result<()> {
        self.parts.send((reply, part.to_vec())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn write_all(
    mut output: impl Write,
    replies: &Receiver<Option<Reply>>,
    parts: &Receiver<(Reply, Vec<u8>)>,
) -> io::Result<()> {
    loop {
        let (reply, part) = select_biased! {
            recv(replies) -> reply => match reply {
                Ok(Some(reply)) => (reply, Vec::new()),
                Ok(None) | Err(_) => return Ok(()),
            },
            recv(parts) -> part => match part {
                Ok(part) => part,
                // Nobody sends any more; the replies that wait are still written.
                Err(_) => return replies.iter().map_while(|reply| reply).try_for_each(|reply| {
                    write_frame(&mut output, &reply, &[])
                }),
            },
        };
        write_frame(&mut output, &reply, &part)?;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::frame::read_frame;

    /// An output that nobody reads until `gate` is dropped.
    struct SlowOutput {
        gate: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for SlowOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.gate.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reply_overtakes_the_parts_of_files_that_wait_for_a_slow_connection() {
        let (gate, closed) = bounded::<()>(0);
        let written = Arc::new(Mutex::new(Vec::new()));
        let (sender, writer) = ReplySender::start(SlowOutput { gate: closed, written: written.clone() });
        let part = |offset| Reply::Part { session: String::new(), path: "file".to_owned(), offset, round: 1 };
        // The writer takes the first part and is held up by the output; the second part waits.
        sender.send_part(part(0), b"one").unwrap();
        let second = sender.clone();
        let waiting = thread::spawn(move || second.send_part(part(3), b"two"));
        sender.send(Reply::Started { session: "s".to_owned(), process: None }).unwrap();
        drop(gate);
        waiting.join().unwrap().unwrap();
        writer.finish();
        let bytes = written.lock().unwrap().clone();
        let mut input = &bytes[..];
        let mut kinds = Vec::new();
        while let Some((reply, _)) = read_frame::<Reply>(&mut input).unwrap() {
            kinds.push(match reply {
                Reply::Part { offset, .. } => format!("part {offset}"),
                _ => "reply".to_owned(),
            });
        }
        assert_eq!(kinds, ["part 0", "reply", "part 3"]);
    }
}
