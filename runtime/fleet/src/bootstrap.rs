//! Starts an agent on a host that may lack this program: a short `sh` script looks for the program by its hash, and
//! receives it if it is missing.
//!
//! Everything after that uses the same connection, so a network delay of 50 ms costs only a login and four round trips.

use std::fs::File;
use std::io::{self, BufRead, Read, Write};

use flagperf_core::hash::hash_reader;
use flagperf_core::text::{one_line, truncate};
use flagperf_host::THIS_PROGRAM;

/// First word of each line that the script prints. A login shell may print other lines before, and text without a line break.
const MARK: &str = "flagperf-bootstrap";
/// Largest number of other lines that are skipped, and largest length of a line in bytes.
const LINES_SKIPPED: usize = 1000;
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Largest number of bytes of unexpected output in a message.
const SHOWN_BYTES_MAX: usize = 200;

/// The file of this program, which is sent to hosts.
#[derive(Clone, Debug)]
pub(super) struct OwnProgram {
    sha256: String,
    size: u64,
    architecture: String,
}

/// What a host had stored as this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredProgram {
    /// Nothing. The program was sent.
    None,
    /// This program.
    Same,
    /// A file with other content. The program was sent and has replaced it.
    Changed,
}

/// Why no agent was started.
#[derive(Debug, thiserror::Error)]
pub(super) enum BootstrapError {
    /// The connection ended or failed.
    #[error("{0}")]
    Connection(#[from] io::Error),
    /// The host printed a line that the script does not print.
    #[error(
        "unexpected output from the host: `{line}` (a start-up file of the login shell there, such as ~/.bashrc, may print \
         text only in an interactive shell)"
    )]
    Unexpected {
        /// The last line that the host printed.
        line: String,
    },
    /// The host answered with something that no agent sends.
    #[error(
        "the answer of the host is not that of flagperf: {0} (does a start-up file of the login shell there print it?)"
    )]
    Foreign(io::Error),
    /// The host has another processor architecture than this machine.
    #[error("the processor architecture of the host is {found}, but this program was built for {own}")]
    Architecture {
        /// The architecture of the host.
        found: String,
        /// The architecture for which this program was built.
        own: String,
    },
    /// The host could not store the program.
    #[error("the program could not be stored on the host: is the home folder writable, and is there space?")]
    NotStored,
}

impl OwnProgram {
    /// Reads the file of the running program.
    pub(super) fn read() -> io::Result<Self> {
        let file = File::open(THIS_PROGRAM)?;
        let size = file.metadata()?.len();
        Ok(OwnProgram { sha256: hash_reader(file)?, size, architecture: std::env::consts::ARCH.to_owned() })
    }

    /// Returns the script that a host runs. The script contains no single quotes, so that it can be put between single quotes
    /// for any shell.
    pub(super) fn script(&self) -> String {
        let OwnProgram { sha256, size, .. } = self;
        // A program that was hashed before is hashed again only if its inode, its size or its times have changed: hashing takes as
        // long as all else that an agent does to start. `head -c` reads no byte beyond the program: the following bytes are for the
        // agent.
        format!(
            "umask 077; d=${{XDG_CACHE_HOME:-$HOME/.cache}}/flagperf/bin/{sha256}; p=$d/flagperf; m=\"{MARK} $(uname -m)\"; \
             s() {{ [ -f \"$1\" ] && [ \"$(sha256sum <\"$1\" | cut -c 1-64)\" = {sha256} ]; }}; \
             t() {{ stat -c \"%i %s %y %z\" \"$p\" 2>/dev/null; }}; \
             k() {{ [ -n \"$(t)\" ] && [ \"$(t)\" = \"$(cat \"$d/hashed\" 2>/dev/null)\" ]; }}; \
             if [ -x \"$p\" ] && {{ k || s \"$p\"; }}; then echo \"$m present\"; {{ t >\"$d/hashed\"; }} 2>/dev/null; \
             else if [ -e \"$p\" ]; then echo \"$m changed\"; else echo \"$m missing\"; fi; \
             mkdir -p \"$d\" && head -c {size} >\"$p.$$\" && s \"$p.$$\" && \
             chmod 700 \"$p.$$\" && mv \"$p.$$\" \"$p\" || {{ echo \"{MARK} failed\"; rm -f \"$p.$$\"; exit 9; }}; \
             echo \"{MARK} stored\"; fi; exec \"$p\" agent"
        )
    }

    /// Communicates with the script until the agent runs. Returns what the host had stored.
    pub(super) fn install(
        &self,
        input: &mut impl Write,
        output: &mut impl BufRead,
    ) -> Result<StoredProgram, BootstrapError> {
        let line = next_mark(output)?;
        let (machine, state) = line.split_once(' ').ok_or_else(|| unexpected(&line))?;
        // Linux and Rust use the same names: x86_64, aarch64.
        if machine != self.architecture {
            let (found, own) = (machine.to_owned(), self.architecture.clone());
            return Err(BootstrapError::Architecture { found, own });
        }
        let stored = match state {
            "present" => return Ok(StoredProgram::Same),
            "missing" => StoredProgram::None,
            "changed" => StoredProgram::Changed,
            other => return Err(unexpected(other)),
        };

        let sent = io::copy(&mut File::open(THIS_PROGRAM)?.take(self.size), input).and_then(|_| input.flush());
        // A host that cannot store the program reports this and stops reading, so sending may fail.
        match next_mark(output)?.as_str() {
            "stored" => sent.map(|()| stored).map_err(BootstrapError::from),
            "failed" => Err(BootstrapError::NotStored),
            other => Err(unexpected(other)),
        }
    }
}

fn unexpected(line: &str) -> BootstrapError {
    BootstrapError::Unexpected { line: truncate(&one_line(line), SHOWN_BYTES_MAX).into_owned() }
}

/// Reads up to the next line that the script printed, and returns the rest of that line after the mark.
fn next_mark(output: &mut impl BufRead) -> Result<String, BootstrapError> {
    let mut last = String::new();
    for _ in 0..LINES_SKIPPED {
        let mut line = Vec::new();
        output.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        // Text without a line break that was printed before is the beginning of the line.
        if let Some((_, rest)) = text.rsplit_once(MARK) {
            return Ok(rest.trim_start().to_owned());
        }
        last = text;
    }
    match last.is_empty() {
        true => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        false => Err(unexpected(&last)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> OwnProgram {
        OwnProgram { sha256: "ab".repeat(32), size: 3, architecture: "x86_64".to_owned() }
    }

    #[test]
    fn the_greeting_is_found_after_text_without_a_line_break() {
        for text in ["abcflagperf-bootstrap x86_64 present\n", "a\nb flagperf-bootstrap x86_64 present\n"] {
            let installed = program().install(&mut Vec::new(), &mut text.as_bytes());
            assert_eq!(installed.unwrap(), StoredProgram::Same, "{text}");
        }
        // The output ends when the silent process is killed.
        let error = program().install(&mut Vec::new(), &mut &b"abc"[..]).unwrap_err().to_string();
        assert!(
            error.starts_with("unexpected output from the host: `abc` (a start-up file of the login shell"),
            "{error}"
        );
    }

    #[test]
    fn the_script_has_no_single_quotes() {
        assert!(!program().script().contains('\''));
    }

    /// Runs the script of the bootstrap with this input, and returns the last word of its first line.
    #[expect(clippy::disallowed_methods, reason = "a test that runs the script as a host does")]
    fn state_of(program: &OwnProgram, cache: &std::path::Path, input: &[u8]) -> String {
        let mut shell = std::process::Command::new("sh");
        let pipe = std::process::Stdio::piped;
        shell.args(["-c", &program.script()]).env("XDG_CACHE_HOME", cache).stdin(pipe()).stdout(pipe());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(input).unwrap();
        let output = String::from_utf8(shell.wait_with_output().unwrap().stdout).unwrap();
        output.lines().next().unwrap_or_default().rsplit_once(' ').unwrap().1.to_owned()
    }

    #[test]
    fn a_stored_program_with_other_content_is_replaced_before_it_runs() {
        let cache = tempfile::tempdir().unwrap();
        let text = b"#!/bin/sh\necho agent\n";
        let sha256 = flagperf_core::hash::hash_bytes(text);
        let program = OwnProgram { sha256: sha256.clone(), size: text.len() as u64, architecture: String::new() };
        let stored = cache.path().join("flagperf/bin").join(sha256).join("flagperf");
        assert_eq!(state_of(&program, cache.path(), text), "missing");
        assert_eq!(state_of(&program, cache.path(), b""), "present");
        for other in ["", "#!/bin/sh\necho other\n"] {
            assert_eq!(state_of(&program, cache.path(), b""), "present", "its hash is known now");
            std::fs::write(&stored, other).unwrap();
            assert_eq!(state_of(&program, cache.path(), text), "changed", "{other}");
            assert_eq!(std::fs::read(&stored).unwrap(), text);
        }
        let mut replaced = &b"flagperf-bootstrap x86_64 changed\nflagperf-bootstrap stored\n"[..];
        let installed = self::program().install(&mut Vec::new(), &mut replaced);
        assert_eq!(installed.unwrap(), StoredProgram::Changed);
    }

    #[test]
    fn lines_of_a_login_shell_are_skipped_and_other_processors_are_refused() {
        let mut sent = Vec::new();
        let installed = program().install(&mut sent, &mut &b"Welcome\nflagperf-bootstrap x86_64 present\n{}"[..]);
        assert_eq!((installed.unwrap(), sent.len()), (StoredProgram::Same, 0));
        let refused = |text: &str| program().install(&mut Vec::new(), &mut text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            refused("flagperf-bootstrap aarch64 missing\n"),
            "the processor architecture of the host is aarch64, but this program was built for x86_64"
        );
        assert!(
            refused("sh: not found\n").starts_with("unexpected output from the host: `sh: not found` (a start-up file")
        );
        assert!(refused("flagperf-bootstrap x86_64 missing\nflagperf-bootstrap failed\n").contains("is there space?"));
    }
}
