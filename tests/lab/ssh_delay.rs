//! A proxy command for ssh that delays every byte: `ssh_delay MILLISECONDS HOST PORT` connects to the port, and delivers what
//! it reads from standard input and from the connection after this time, in each direction without limiting throughput.
//!
//! It is an example of the package, so that cargo builds it with the tests.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// The size of a chunk in bytes.
const CHUNK_SIZE: usize = 64 * 1024;

/// The largest number of chunks on their way in one direction: at 50 ms, 256 MiB are 5 GB/s.
const CHUNKS_MAX: usize = 4096;

/// Bytes and the time at which they must be delivered; no bytes are the end of the stream.
type Chunk = (Instant, Vec<u8>);

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [delay, host, port] => match relay(delay, host, port) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ssh_delay: {host}:{port}: {error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: ssh_delay MILLISECONDS HOST PORT");
            ExitCode::from(2)
        }
    }
}

/// Relays until one of both sides ends.
fn relay(delay: &str, host: &str, port: &str) -> io::Result<()> {
    let invalid = |error: std::num::ParseIntError| io::Error::new(io::ErrorKind::InvalidInput, error);
    let delay = Duration::from_millis(delay.parse().map_err(invalid)?);
    let connection = TcpStream::connect((host, port.parse().map_err(invalid)?))?;
    connection.set_nodelay(true)?;
    // The packets that open a connection take one round trip before the first byte can follow.
    thread::sleep(2 * delay);
    let (ended, end) = sync_channel(2);
    let (from, to) = (connection.try_clone()?, connection.try_clone()?);
    start(delay, io::stdin(), to, ended.clone());
    start(delay, from, io::stdout(), ended);
    let result = end.recv().unwrap_or(Ok(()));
    // The other side may be gone already.
    connection.shutdown(Shutdown::Both).ok();
    result
}

/// Starts both threads of one direction; the second reports when it has delivered everything.
fn start(
    delay: Duration,
    from: impl Read + Send + 'static,
    to: impl Write + Send + 'static,
    ended: SyncSender<io::Result<()>>,
) {
    let (queue, chunks) = sync_channel(CHUNKS_MAX);
    thread::spawn(move || read(delay, from, &queue));
    // The program has ended if nobody waits for the result.
    thread::spawn(move || ended.send(deliver(&chunks, to)).ok());
}

/// Reads until the stream ends and notes when each chunk must be delivered.
#[expect(clippy::disallowed_methods, reason = "the relay is a program of its own and waits by the monotonic clock")]
fn read(delay: Duration, mut from: impl Read, queue: &SyncSender<Chunk>) {
    let mut buffer = vec![0; CHUNK_SIZE];
    loop {
        // A connection that breaks ends as one that is closed.
        let count = from.read(&mut buffer).unwrap_or(0);
        if queue.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() || count == 0 {
            return;
        }
    }
}

/// Writes each chunk at its time.
#[expect(clippy::disallowed_methods, reason = "the relay is a program of its own and waits by the monotonic clock")]
fn deliver(chunks: &Receiver<Chunk>, mut to: impl Write) -> io::Result<()> {
    for (due, bytes) in chunks {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if bytes.is_empty() {
            break;
        }
        to.write_all(&bytes)?;
        to.flush()?;
    }
    Ok(())
}
