//! Scans a pickle before it is loaded: which functions it names, how large its values become and how deeply they nest.
//!
//! The reader that loads it (candle's) copies a value whenever it is memoized or recalled, so a few hundred bytes can
//! double a value thirty times. The scanner accounts for the instructions as that reader executes them. Knows nothing
//! about tensors.

use std::collections::HashMap;
use std::io::{self, BufRead, Read, Take};

/// The most bytes of a pickle. The state_dict of 100,000 tensors has about 20 MiB.
const PICKLE_BYTES: u64 = 64 << 20;
/// The most bytes that its values may occupy, including copies.
const VALUE_BYTES: u64 = 256 << 20;
/// The deepest nesting of its values. Those of a state_dict nest up to 10 levels.
const DEPTH: u32 = 64;
/// Length of the longer of the flags `neg` and `conj`.
const LONGEST_FLAG: u64 = 4;
/// Bytes of a value, excluding its text.
const OBJECT_BYTES: u64 = 64;

/// A function or class named in a pickle: module and name.
pub(super) type Callable = (String, String);

/// The size and nesting depth of a value on the stack or in the memo.
#[derive(Clone, Copy)]
struct ValueSize {
    bytes: u64,
    depth: u32,
    is_mark: bool,
}

const LEAF: ValueSize = ValueSize { bytes: OBJECT_BYTES, depth: 1, is_mark: false };
const MARK: ValueSize = ValueSize { is_mark: true, ..LEAF };

struct PickleScanner<R> {
    input: Take<R>,
    stack: Vec<ValueSize>,
    memo: HashMap<u32, ValueSize>,
    /// Bytes of all values on the stack and in the memo.
    total_bytes: u64,
    named: Vec<Callable>,
}

/// Returns every function and class that a pickle names.
///
/// # Errors
/// A message when the pickle is truncated, too large or too deeply nested, or contains instructions that PyTorch does
/// not write.
pub(super) fn callables(pickle: impl BufRead) -> Result<Vec<Callable>, String> {
    let mut scanner = PickleScanner {
        input: pickle.take(PICKLE_BYTES),
        stack: Vec::new(),
        memo: HashMap::new(),
        total_bytes: 0,
        named: Vec::new(),
    };
    loop {
        match scanner.step() {
            Ok(true) => {}
            Ok(false) => return Ok(scanner.named),
            Err(_) if scanner.input.limit() == 0 => {
                return Err(format!("its pickle is larger than {PICKLE_BYTES} bytes"));
            }
            Err(error) => return Err(format!("its pickle: {error}")),
        }
    }
}

impl<R: BufRead> PickleScanner<R> {
    /// Executes one instruction. Returns `false` at the end of the pickle.
    fn step(&mut self) -> io::Result<bool> {
        let [instruction] = self.bytes()?;
        match instruction {
            b'.' => return Ok(false),
            0x80 => self.skip(1)?,
            b'c' => self.callable()?,
            b'K' => self.number(1)?,
            b'M' => self.number(2)?,
            b'J' => self.number(4)?,
            b'G' => self.number(8)?,
            0x8a => match self.bytes()? {
                [length @ 0..=8] => self.number(length.into())?,
                [length] => return refuse(format!("unsupported integer of {length} bytes (at most 8)")),
            },
            b'X' => {
                let length: u64 = u32::from_le_bytes(self.bytes()?).into();
                self.text(length)?;
                self.push(ValueSize { bytes: OBJECT_BYTES + length, ..LEAF })?;
            }
            b')' | b'}' | b']' | b'N' | 0x88 | 0x89 => self.push(LEAF)?,
            b'(' => self.push(MARK)?,
            b'Q' | 0x85 => self.combine(1)?,
            b'R' | b'b' | 0x81 | 0x86 => self.combine(2)?,
            0x87 => self.combine(3)?,
            b't' => {
                let count = self.count_above_mark()?;
                self.combine(count)?;
                self.drop_mark_below_top()?;
            }
            b'a' => self.append(1)?,
            b's' => self.append(2)?,
            b'e' | b'u' => {
                let count = self.count_above_mark()?;
                self.append_over_mark(count)?;
            }
            b'q' => {
                let [index] = self.bytes()?;
                self.memoize(index.into())?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.bytes()?);
                self.memoize(index)?;
            }
            b'h' => {
                let [index] = self.bytes()?;
                self.recall(index.into())?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.bytes()?);
                self.recall(index)?;
            }
            other => return refuse(format!("unsupported instruction {other:#04x} (PyTorch does not write it)")),
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

    /// Skips text, and refuses the flags of tensors whose elements differ from the stored ones. candle's reader ignores
    /// these flags.
    fn text(&mut self, length: u64) -> io::Result<()> {
        if length > LONGEST_FLAG {
            return self.skip(length);
        }
        let mut text = Vec::new();
        self.input.by_ref().take(length).read_to_end(&mut text)?;
        match text.as_slice() {
            b"neg" | b"conj" => refuse(format!(
                "unsupported tensor flag `{}`: the elements differ from the stored ones (save `tensor.clone()`)",
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

    fn callable(&mut self) -> io::Result<()> {
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
        self.push(ValueSize { bytes: OBJECT_BYTES + text, ..LEAF })
    }

    fn push(&mut self, value: ValueSize) -> io::Result<()> {
        self.account(value)?;
        self.stack.push(value);
        Ok(())
    }

    fn account(&mut self, value: ValueSize) -> io::Result<()> {
        self.total_bytes += value.bytes;
        if self.total_bytes > VALUE_BYTES {
            return refuse(format!("its values take more than {VALUE_BYTES} bytes"));
        }
        if value.depth > DEPTH {
            return refuse(format!("its values nest deeper than {DEPTH} levels"));
        }
        Ok(())
    }

    fn pop(&mut self) -> io::Result<ValueSize> {
        let value = self.stack.pop().ok_or_else(missing_value)?;
        self.total_bytes -= value.bytes;
        Ok(value)
    }

    /// Replaces the topmost values by one that contains them.
    fn combine(&mut self, count: usize) -> io::Result<()> {
        let mut whole = LEAF;
        for _ in 0..count {
            whole = enclose(whole, self.pop()?);
        }
        self.push(whole)
    }

    /// Moves the topmost values into the one below them.
    fn append(&mut self, count: usize) -> io::Result<()> {
        let mut parts = Vec::with_capacity(count);
        for _ in 0..count {
            parts.push(self.pop()?);
        }
        let whole = parts.into_iter().fold(self.pop()?, enclose);
        self.push(whole)
    }

    fn append_over_mark(&mut self, count: usize) -> io::Result<()> {
        let mut parts = Vec::with_capacity(count);
        for _ in 0..count {
            parts.push(self.pop()?);
        }
        self.pop()?;
        let whole = parts.into_iter().fold(self.pop()?, enclose);
        self.push(whole)
    }

    /// Removes the mark below the topmost value.
    fn drop_mark_below_top(&mut self) -> io::Result<()> {
        let top = self.pop()?;
        self.pop()?;
        self.push(top)
    }

    /// Returns the number of values above the topmost mark.
    fn count_above_mark(&self) -> io::Result<usize> {
        self.stack.iter().rev().position(|value| value.is_mark).ok_or_else(missing_value)
    }

    fn memoize(&mut self, index: u32) -> io::Result<()> {
        let value = *self.stack.last().ok_or_else(missing_value)?;
        self.account(value)?;
        if let Some(before) = self.memo.insert(index, value) {
            self.total_bytes -= before.bytes;
        }
        Ok(())
    }

    fn recall(&mut self, index: u32) -> io::Result<()> {
        let value = *self.memo.get(&index).ok_or_else(missing_value)?;
        self.push(value)
    }
}

/// Returns the size of `whole` after `part` was put into it.
fn enclose(whole: ValueSize, part: ValueSize) -> ValueSize {
    ValueSize { bytes: whole.bytes + part.bytes, depth: whole.depth.max(part.depth + 1), is_mark: false }
}

fn missing_value() -> io::Error {
    io::Error::other("an instruction uses a value that does not exist")
}

fn refuse<T>(reason: String) -> io::Result<T> {
    Err(io::Error::other(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(pickle: &[u8]) -> String {
        callables(pickle).unwrap_err()
    }

    #[test]
    fn a_named_function_is_found_within_nested_values() {
        let named = callables(&b"\x80\x02}q\x00(X\x01\x00\x00\x00acos\nsystem\r\nq\x01)R(Ku."[..]).unwrap();
        assert_eq!(named, [("os".to_owned(), "system".to_owned())]);
    }

    #[test]
    fn a_value_that_doubles_repeatedly_is_refused_before_it_is_large() {
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
    fn missing_or_endless_input_is_refused_without_filling_memory() {
        assert_eq!(reason(b"\x80\x02X\xff\xff\xff\xff."), "its pickle: unexpected end of file");
        let endless = io::BufReader::new(io::repeat(b'N'));
        assert_eq!(callables(endless).unwrap_err(), "its pickle: its values take more than 268435456 bytes");
        let long = io::BufReader::new((&b"c"[..]).chain(io::repeat(b'a')));
        assert_eq!(callables(long).unwrap_err(), "its pickle is larger than 67108864 bytes");
    }

    #[test]
    fn instructions_that_pytorch_does_not_write_are_refused() {
        assert_eq!(reason(b"\x80\x02(d."), "its pickle: unsupported instruction 0x64 (PyTorch does not write it)");
        assert_eq!(reason(b"\x80\x02\x8a\xff."), "its pickle: unsupported integer of 255 bytes (at most 8)");
        assert_eq!(reason(b"\x80\x02h\x05."), "its pickle: an instruction uses a value that does not exist");
        assert_eq!(reason(b"\x80\x02t."), "its pickle: an instruction uses a value that does not exist");
        assert_eq!(reason(b"\x80\x02a."), "its pickle: an instruction uses a value that does not exist");
    }
}
