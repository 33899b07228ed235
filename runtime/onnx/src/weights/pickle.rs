//! Looks through a pickle before it is taken apart: which functions it names, how large its values become, and how deep
//! they nest.
//!
//! The reader behind it copies a value whenever it is memorised or fetched, so that a few hundred bytes can double a
//! value thirty times. The instructions are counted here as that reader carries them out. Knows no tensor.

use std::collections::HashMap;
use std::io::{self, BufRead, Read, Take};

/// Bytes of a pickle at most: the state_dict of 100,000 tensors has some 20 MiB.
const PICKLE_BYTES: u64 = 64 << 20;
/// Memory that its values may take, copies included.
const VALUE_BYTES: u64 = 256 << 20;
/// Levels to which its values may nest; those of a state_dict nest to 10.
const DEPTH: u32 = 64;
/// Bytes of the longest of the marks `neg` and `conj`.
const LONGEST_MARK: u64 = 4;
/// Memory of a value without its text.
const OBJECT_BYTES: u64 = 64;

/// A function or class that a pickle names: its module and its own name.
pub(super) type Callable = (String, String);

/// A value on the stack or in the memo.
#[derive(Clone, Copy)]
struct Extent {
    bytes: u64,
    depth: u32,
    is_mark: bool,
}

const LEAF: Extent = Extent { bytes: OBJECT_BYTES, depth: 1, is_mark: false };
const MARK: Extent = Extent { is_mark: true, ..LEAF };

struct Walk<R> {
    input: Take<R>,
    stack: Vec<Extent>,
    memo: HashMap<u32, Extent>,
    /// Bytes of everything on the stack and in the memo.
    held: u64,
    named: Vec<Callable>,
}

/// Every function and class that a pickle names.
///
/// # Errors
/// When the pickle is cut off, too large, nests too deep, or has instructions that PyTorch does not write; in words.
pub(super) fn callables(pickle: impl BufRead) -> Result<Vec<Callable>, String> {
    let mut walk =
        Walk { input: pickle.take(PICKLE_BYTES), stack: Vec::new(), memo: HashMap::new(), held: 0, named: Vec::new() };
    loop {
        match walk.step() {
            Ok(true) => {}
            Ok(false) => return Ok(walk.named),
            Err(_) if walk.input.limit() == 0 => return Err(format!("its pickle is larger than {PICKLE_BYTES} bytes")),
            Err(error) => return Err(format!("its pickle: {error}")),
        }
    }
}

impl<R: BufRead> Walk<R> {
    /// Carries out one instruction; `false` at the end.
    fn step(&mut self) -> io::Result<bool> {
        let [instruction] = self.bytes()?;
        match instruction {
            b'.' => return Ok(false),
            0x80 => self.skip(1)?,
            b'c' => self.name()?,
            b'K' => self.number(1)?,
            b'M' => self.number(2)?,
            b'J' => self.number(4)?,
            b'G' => self.number(8)?,
            0x8a => match self.bytes()? {
                [length @ 0..=8] => self.number(length.into())?,
                [length] => return refused(format!("an integer of {length} bytes")),
            },
            b'X' => {
                let length: u64 = u32::from_le_bytes(self.bytes()?).into();
                self.text(length)?;
                self.push(Extent { bytes: OBJECT_BYTES + length, ..LEAF })?;
            }
            b')' | b'}' | b']' | b'N' | 0x88 | 0x89 => self.push(LEAF)?,
            b'(' => self.push(MARK)?,
            b'Q' | 0x85 => self.combine(1)?,
            b'R' | b'b' | 0x81 | 0x86 => self.combine(2)?,
            0x87 => self.combine(3)?,
            b't' => {
                let count = self.above_mark()?;
                self.combine(count)?;
                self.drop_below()?;
            }
            b'a' => self.add(1)?,
            b's' => self.add(2)?,
            b'e' | b'u' => {
                let count = self.above_mark()?;
                self.add_over_mark(count)?;
            }
            b'q' => {
                let [place] = self.bytes()?;
                self.memorise(place.into())?;
            }
            b'r' => {
                let place = u32::from_le_bytes(self.bytes()?);
                self.memorise(place)?;
            }
            b'h' => {
                let [place] = self.bytes()?;
                self.fetch(place.into())?;
            }
            b'j' => {
                let place = u32::from_le_bytes(self.bytes()?);
                self.fetch(place)?;
            }
            other => return refused(format!("the instruction {other:#04x}, which PyTorch does not write")),
        }
        Ok(true)
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn skip(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.input.by_ref().take(count), &mut io::sink())?;
        if skipped == count { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Passes over a text, and refuses the marks of a tensor whose elements are not what is stored: the reader behind this
    /// one does not look at them.
    fn text(&mut self, length: u64) -> io::Result<()> {
        if length > LONGEST_MARK {
            return self.skip(length);
        }
        let mut text = Vec::new();
        self.input.by_ref().take(length).read_to_end(&mut text)?;
        match text.as_slice() {
            b"neg" | b"conj" => refused(format!(
                "a tensor with the mark `{}`, whose elements are not what is stored (save `tensor.clone()`)",
                String::from_utf8_lossy(&text)
            )),
            text if text.len() as u64 == length => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn number(&mut self, width: u64) -> io::Result<()> {
        self.skip(width)?;
        self.push(LEAF)
    }

    fn name(&mut self) -> io::Result<()> {
        let mut line = || {
            let mut line = Vec::new();
            self.input.read_until(b'\n', &mut line)?;
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            Ok::<_, io::Error>(String::from_utf8_lossy(&line).into_owned())
        };
        let (module, name) = (line()?, line()?);
        let text = (module.len() + name.len()) as u64;
        self.named.push((module, name));
        self.push(Extent { bytes: OBJECT_BYTES + text, ..LEAF })
    }

    fn push(&mut self, value: Extent) -> io::Result<()> {
        self.hold(value)?;
        self.stack.push(value);
        Ok(())
    }

    fn hold(&mut self, value: Extent) -> io::Result<()> {
        self.held += value.bytes;
        if self.held > VALUE_BYTES {
            return refused(format!("its values take more than {VALUE_BYTES} bytes"));
        }
        if value.depth > DEPTH {
            return refused(format!("its values nest deeper than {DEPTH} levels"));
        }
        Ok(())
    }

    fn pop(&mut self) -> io::Result<Extent> {
        let value = self.stack.pop().ok_or_else(missing)?;
        self.held -= value.bytes;
        Ok(value)
    }

    /// The topmost values as one.
    fn combine(&mut self, count: usize) -> io::Result<()> {
        let mut whole = LEAF;
        for _ in 0..count {
            whole = within(whole, self.pop()?);
        }
        self.push(whole)
    }

    /// The topmost values into the one below them.
    fn add(&mut self, count: usize) -> io::Result<()> {
        let mut parts = Vec::with_capacity(count);
        for _ in 0..count {
            parts.push(self.pop()?);
        }
        let whole = parts.into_iter().fold(self.pop()?, within);
        self.push(whole)
    }

    fn add_over_mark(&mut self, count: usize) -> io::Result<()> {
        let mut parts = Vec::with_capacity(count);
        for _ in 0..count {
            parts.push(self.pop()?);
        }
        self.pop()?;
        let whole = parts.into_iter().fold(self.pop()?, within);
        self.push(whole)
    }

    /// Takes away the mark below the topmost value.
    fn drop_below(&mut self) -> io::Result<()> {
        let top = self.pop()?;
        self.pop()?;
        self.push(top)
    }

    /// How many values lie above the topmost mark.
    fn above_mark(&self) -> io::Result<usize> {
        self.stack.iter().rev().position(|value| value.is_mark).ok_or_else(missing)
    }

    fn memorise(&mut self, place: u32) -> io::Result<()> {
        let value = *self.stack.last().ok_or_else(missing)?;
        self.hold(value)?;
        if let Some(before) = self.memo.insert(place, value) {
            self.held -= before.bytes;
        }
        Ok(())
    }

    fn fetch(&mut self, place: u32) -> io::Result<()> {
        let value = *self.memo.get(&place).ok_or_else(missing)?;
        self.push(value)
    }
}

/// `whole` with `part` inside it.
fn within(whole: Extent, part: Extent) -> Extent {
    Extent { bytes: whole.bytes + part.bytes, depth: whole.depth.max(part.depth + 1), is_mark: false }
}

fn missing() -> io::Error {
    io::Error::other("it takes a value that is not there")
}

fn refused<T>(reason: String) -> io::Result<T> {
    Err(io::Error::other(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(pickle: &[u8]) -> String {
        callables(pickle).unwrap_err()
    }

    #[test]
    fn names_are_found_wherever_they_stand() {
        let named = callables(&b"\x80\x02}q\x00(X\x01\x00\x00\x00acos\nsystem\r\nq\x01)R(Ku."[..]).unwrap();
        assert_eq!(named, [("os".to_owned(), "system".to_owned())]);
    }

    #[test]
    fn a_value_that_doubles_is_refused_before_it_is_large() {
        let mut pickle = b"\x80\x02X\x04\x00\x00\x00abcdq\x00".to_vec();
        for _ in 0..30 {
            pickle.extend(b"h\x00h\x00\x86q\x00");
        }
        pickle.push(b'.');
        assert!(pickle.len() < 300);
        assert_eq!(reason(&pickle), "its pickle: its values take more than 268435456 bytes");
    }

    #[test]
    fn deep_nesting_is_refused() {
        let pickle = [&b"\x80\x02)"[..], &[0x85; 100_000], b"."].concat();
        assert_eq!(reason(&pickle), "its pickle: its values nest deeper than 64 levels");
    }

    #[test]
    fn text_that_is_not_there_takes_no_memory() {
        assert_eq!(reason(b"\x80\x02X\xff\xff\xff\xff."), "its pickle: unexpected end of file");
        let endless = io::BufReader::new(io::repeat(b'N'));
        assert_eq!(callables(endless).unwrap_err(), "its pickle: its values take more than 268435456 bytes");
        let long = io::BufReader::new((&b"c"[..]).chain(io::repeat(b'a')));
        assert_eq!(callables(long).unwrap_err(), "its pickle is larger than 67108864 bytes");
    }

    #[test]
    fn what_pytorch_does_not_write_is_refused() {
        assert_eq!(reason(b"\x80\x02(d."), "its pickle: the instruction 0x64, which PyTorch does not write");
        assert_eq!(reason(b"\x80\x02\x8a\xff."), "its pickle: an integer of 255 bytes");
        assert_eq!(reason(b"\x80\x02h\x05."), "its pickle: it takes a value that is not there");
        assert_eq!(reason(b"\x80\x02t."), "its pickle: it takes a value that is not there");
        assert_eq!(reason(b"\x80\x02a."), "its pickle: it takes a value that is not there");
    }
}
