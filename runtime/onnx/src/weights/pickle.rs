//! Reads the pickle of a state_dict: which tensors it lists, and where their elements are stored.
//!
//! A pickle is a program for a stack machine that builds objects and calls functions. Here nothing is called: a call of
//! a function that constructs tensors is replaced by a description of the tensor, and any other function is refused.
//! Every instruction creates at most one object, objects refer to each other by number, and nothing here is recursive:
//! memory grows with the length of the pickle only. Knows nothing about archives.

use std::collections::HashMap;
use std::io::{self, BufRead, Read, Take};
use std::sync::Arc;

use super::KEY_SEPARATOR;

/// The most bytes of a pickle. The state_dict of 100,000 tensors has about 20 MiB.
const PICKLE_BYTES: u64 = 64 << 20;
/// The most values that it may push onto its stack. The state_dict of 100,000 tensors pushes 3 million.
const VALUES: usize = 1 << 22;
/// The most tensors of all its dicts.
const TENSORS_MAX: usize = 1 << 20;
/// The most bytes of the names of its tensors, each with the path to its dict.
const NAME_BYTES: usize = 256 << 20;
/// The most dimensions of a tensor, which is PyTorch's own limit.
const RANK: usize = 64;
/// Length of the longer of the flags `neg` and `conj`.
const LONGEST_FLAG: u64 = 4;

/// A tensor as the pickle describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PickledTensor {
    /// The storage's class, such as `FloatStorage`.
    pub storage: Arc<str>,
    /// The storage's name in the archive.
    pub key: Arc<str>,
    /// Elements of the storage.
    pub stored: usize,
    /// Elements of the storage before the tensor's first.
    pub offset: usize,
    pub shape: Vec<usize>,
    /// For each dimension, the distance of its entries in elements of the storage.
    pub strides: Vec<usize>,
}

/// Why a pickle cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PickleError {
    /// It is truncated, too large, or contains instructions that PyTorch does not write.
    Malformed(String),
    /// It names this function or class, which constructs no tensor.
    Forbidden(String),
}

impl From<io::Error> for PickleError {
    fn from(error: io::Error) -> Self {
        PickleError::Malformed(format!("its pickle: {error}"))
    }
}

/// The functions and classes in the state_dict of a model, besides storages (`torch.FloatStorage` and the like).
#[derive(Clone, Copy, Debug)]
enum Callable {
    OrderedDict,
    RebuildFromType,
    RebuildParameter,
    RebuildTensor,
}

const CALLABLES: [(&str, &str, Callable); 4] = [
    ("collections", "OrderedDict", Callable::OrderedDict),
    ("torch._tensor", "_rebuild_from_type_v2", Callable::RebuildFromType),
    ("torch._utils", "_rebuild_parameter", Callable::RebuildParameter),
    ("torch._utils", "_rebuild_tensor_v2", Callable::RebuildTensor),
];

/// The number of an object.
type Id = usize;

#[derive(Debug)]
enum Object {
    Integer(i64),
    Text(Arc<str>),
    Callable(Callable),
    StorageClass(Arc<str>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Storage {
        class: Arc<str>,
        key: Arc<str>,
        stored: usize,
    },
    Tensor(Box<PickledTensor>),
    /// An object that describes no tensor: a number, a flag, a list.
    Other,
}

struct PickleReader<R> {
    input: Take<R>,
    objects: Vec<Object>,
    stack: Vec<Id>,
    /// The heights of the stack at its marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    /// How many values were pushed onto the stack.
    pushed: usize,
}

/// Returns the tensors of a state_dict by name. Entries that are no tensors are left out.
pub(super) fn read_state_dict(pickle: impl BufRead) -> Result<HashMap<String, PickledTensor>, PickleError> {
    let mut reader = PickleReader {
        input: pickle.take(PICKLE_BYTES),
        objects: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        pushed: 0,
    };
    loop {
        match reader.step() {
            Ok(true) => {}
            Ok(false) => return reader.state_dict(),
            Err(PickleError::Malformed(_)) if reader.input.limit() == 0 => {
                return Err(PickleError::Malformed(format!("its pickle is larger than {PICKLE_BYTES} bytes")));
            }
            Err(error) => return Err(error),
        }
    }
}

impl<R: BufRead> PickleReader<R> {
    /// Executes one instruction. Returns `false` at the end of the pickle.
    fn step(&mut self) -> Result<bool, PickleError> {
        let [instruction] = self.bytes()?;
        match instruction {
            b'.' => return Ok(false),
            0x80 => drop(self.bytes::<1>()?),
            b'c' => self.callable()?,
            b'K' => self.integer(1)?,
            b'M' => self.integer(2)?,
            b'J' => self.integer(4)?,
            0x8a => match self.bytes()? {
                [length @ 0..=8] => self.integer(length)?,
                [length] => return refuse(format!("unsupported integer of {length} bytes (at most 8)")),
            },
            b'G' => {
                self.bytes::<8>()?;
                self.push(Object::Other)?;
            }
            b'X' => self.text()?,
            b')' => self.push(Object::Tuple(Vec::new()))?,
            b'}' => self.push(Object::Dict(Vec::new()))?,
            b']' | b'N' | 0x88 | 0x89 => self.push(Object::Other)?,
            b'(' => self.marks.push(self.stack.len()),
            b'Q' => self.storage()?,
            count @ 0x85..=0x87 => self.tuple(usize::from(count - 0x84))?,
            b't' => {
                let count = self.pop_mark()?;
                self.tuple(count)?;
            }
            b'R' => self.call()?,
            0x81 => {
                self.pop(2)?;
                self.push(Object::Other)?;
            }
            // The state of an object and the elements of a list describe no tensor.
            b'b' | b'a' => drop(self.pop(1)?),
            b'e' => {
                let count = self.pop_mark()?;
                self.pop(count)?;
            }
            b's' => self.set_items(2)?,
            b'u' => {
                let count = self.pop_mark()?;
                self.set_items(count)?;
            }
            b'q' | b'r' => {
                let index = self.memo_index(instruction == b'q')?;
                self.memo.insert(index, *self.stack.last().ok_or_else(missing_value)?);
            }
            b'h' | b'j' => {
                let index = self.memo_index(instruction == b'h')?;
                let id = *self.memo.get(&index).ok_or_else(missing_value)?;
                self.push_id(id)?;
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

    /// Reads an integer of 0 to 8 bytes. Those of 1 and 2 bytes are written without a sign, which is no matter here:
    /// sizes, offsets and strides are not negative.
    fn integer(&mut self, length: u8) -> Result<(), PickleError> {
        let mut bytes = [0; 8];
        self.input.read_exact(&mut bytes[..usize::from(length)])?;
        let unsigned = length <= 2;
        let fill = if !unsigned && bytes[usize::from(length) - 1] >= 0x80 { 0xff } else { 0 };
        bytes[usize::from(length)..].fill(fill);
        self.push(Object::Integer(i64::from_le_bytes(bytes)))
    }

    /// Reads text, and refuses the flags of tensors whose elements differ from the stored ones.
    fn text(&mut self) -> Result<(), PickleError> {
        let length = u64::from(u32::from_le_bytes(self.bytes()?));
        let mut text = Vec::new();
        self.input.by_ref().take(length).read_to_end(&mut text)?;
        if text.len() as u64 != length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let text = String::from_utf8(text).map_err(io::Error::other)?;
        if length <= LONGEST_FLAG && matches!(&text[..], "neg" | "conj") {
            return refuse(format!(
                "unsupported tensor flag `{text}`: the elements differ from the stored ones (save `tensor.clone()`)"
            ));
        }
        self.push(Object::Text(text.into()))
    }

    fn callable(&mut self) -> Result<(), PickleError> {
        let (module, name) = (self.line()?, self.line()?);
        let known = CALLABLES.iter().find(|known| (known.0, known.1) == (&module, &name));
        match known {
            Some((.., callable)) => self.push(Object::Callable(*callable)),
            None if module == "torch" && name.ends_with("Storage") => self.push(Object::StorageClass(name.into())),
            None => Err(PickleError::Forbidden(format!("{module}.{name}"))),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.input.read_line(&mut line)?;
        match line.strip_suffix('\n') {
            Some(line) => Ok(line.trim_end_matches('\r').to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn push(&mut self, object: Object) -> Result<(), PickleError> {
        self.objects.push(object);
        self.push_id(self.objects.len() - 1)
    }

    fn push_id(&mut self, id: Id) -> Result<(), PickleError> {
        self.stack.push(id);
        self.pushed += 1;
        if self.pushed > VALUES { refuse(format!("it pushes more than {VALUES} values")) } else { Ok(()) }
    }

    /// Removes the topmost values, which must lie above the topmost mark, and returns them from the bottom up.
    fn pop(&mut self, count: usize) -> Result<Vec<Id>, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let start = self.stack.len().checked_sub(count).filter(|start| *start >= floor).ok_or_else(missing_value)?;
        Ok(self.stack.split_off(start))
    }

    /// Removes the topmost mark and returns the number of values above it.
    fn pop_mark(&mut self) -> Result<usize, PickleError> {
        let height = self.marks.pop().ok_or_else(missing_value)?;
        Ok(self.stack.len() - height)
    }

    fn memo_index(&mut self, short: bool) -> io::Result<u32> {
        if short { Ok(self.bytes::<1>()?[0].into()) } else { Ok(u32::from_le_bytes(self.bytes()?)) }
    }

    fn tuple(&mut self, count: usize) -> Result<(), PickleError> {
        let items = self.pop(count)?;
        self.push(Object::Tuple(items))
    }

    /// Moves the topmost values, which are keys and values in turn, into the dict below them.
    fn set_items(&mut self, count: usize) -> Result<(), PickleError> {
        let items = self.pop(count)?;
        let dict = *self.stack.last().ok_or_else(missing_value)?;
        if let Object::Dict(entries) = &mut self.objects[dict] {
            entries.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        }
        Ok(())
    }

    /// Replaces a reference to a storage, `("storage", class, key, device, size)`.
    fn storage(&mut self) -> Result<(), PickleError> {
        let reference = self.pop(1)?[0];
        let [_, class, key, _, stored, ..] = *self.items(reference)? else { return refuse_structure() };
        let stored = self.size(stored)?;
        let (Object::StorageClass(class), Object::Text(key)) = (&self.objects[class], &self.objects[key]) else {
            return refuse_structure();
        };
        let storage = Object::Storage { class: class.clone(), key: key.clone(), stored };
        self.push(storage)
    }

    /// Replaces a function and its arguments by the object that the call would create.
    fn call(&mut self) -> Result<(), PickleError> {
        let pair = self.pop(2)?;
        let (mut callable, mut arguments) = self.callable_and_arguments(pair[0], pair[1])?;
        if let (Callable::RebuildFromType, [inner, _, inner_arguments, ..]) = (callable, arguments) {
            (callable, arguments) = self.callable_and_arguments(*inner, *inner_arguments)?;
        }
        match (callable, arguments) {
            (Callable::OrderedDict, _) => self.push(Object::Dict(Vec::new())),
            (Callable::RebuildParameter, [tensor, ..]) => self.push_id(*tensor),
            (Callable::RebuildTensor, [storage, offset, shape, strides, ..]) => {
                let tensor = self.tensor([*storage, *offset, *shape, *strides])?;
                self.push(Object::Tensor(Box::new(tensor)))
            }
            _ => refuse_structure(),
        }
    }

    fn callable_and_arguments(&self, callable: Id, arguments: Id) -> Result<(Callable, &[Id]), PickleError> {
        match self.objects[callable] {
            Object::Callable(callable) => Ok((callable, self.items(arguments)?)),
            _ => refuse_structure(),
        }
    }

    fn tensor(&self, [storage, offset, shape, strides]: [Id; 4]) -> Result<PickledTensor, PickleError> {
        let Object::Storage { class, key, stored } = &self.objects[storage] else { return refuse_structure() };
        let tensor = PickledTensor {
            storage: class.clone(),
            key: key.clone(),
            stored: *stored,
            offset: self.size(offset)?,
            shape: self.sizes(shape)?,
            strides: self.sizes(strides)?,
        };
        if tensor.shape.len() == tensor.strides.len() { Ok(tensor) } else { refuse_structure() }
    }

    fn items(&self, tuple: Id) -> Result<&[Id], PickleError> {
        match &self.objects[tuple] {
            Object::Tuple(items) => Ok(items),
            _ => refuse_structure(),
        }
    }

    fn size(&self, id: Id) -> Result<usize, PickleError> {
        match self.objects[id] {
            Object::Integer(value) => usize::try_from(value).or_else(|_| refuse_structure()),
            _ => refuse_structure(),
        }
    }

    fn sizes(&self, tuple: Id) -> Result<Vec<usize>, PickleError> {
        match self.items(tuple)? {
            items if items.len() > RANK => refuse(format!("unsupported tensor of more than {RANK} dimensions")),
            items => items.iter().map(|id| self.size(*id)).collect(),
        }
    }

    /// Returns the tensors of the dict on top of the stack, and of the dicts in it at any depth: the names of the latter
    /// follow the path of keys to their dict and a separator.
    fn state_dict(self) -> Result<HashMap<String, PickledTensor>, PickleError> {
        let top = *self.stack.last().ok_or_else(missing_value)?;
        let Object::Dict(_) = &self.objects[top] else { return refuse_structure() };
        let mut tensors = HashMap::new();
        let mut dicts = vec![(top, None::<String>)];
        // One dict may be the value of many keys, also of its own: what is visited and what is copied have limits.
        let (mut visited, mut copied) = (0, 0);
        while let Some((dict, path)) = dicts.pop() {
            let Object::Dict(entries) = &self.objects[dict] else { continue };
            for (key, value) in entries {
                let Object::Text(key) = &self.objects[*key] else { continue };
                visited += 1;
                copied += path.as_ref().map_or(0, String::len) + key.len();
                if visited > VALUES || copied > NAME_BYTES || tensors.len() > TENSORS_MAX {
                    return refuse(format!("its dicts have more than {TENSORS_MAX} tensors or {VALUES} entries"));
                }
                let name = |separator| path.as_ref().map_or(key.to_string(), |path| format!("{path}{separator}{key}"));
                match &self.objects[*value] {
                    Object::Dict(_) => dicts.push((*value, Some(name('.')))),
                    Object::Tensor(tensor) => {
                        let other = tensors.insert(name(KEY_SEPARATOR), PickledTensor::clone(tensor));
                        if other.is_some() {
                            return refuse(format!("it has several tensors `{}`", name('.')));
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(tensors)
    }
}

fn missing_value() -> PickleError {
    io::Error::other("an instruction uses a value that does not exist").into()
}

fn refuse<T>(reason: String) -> Result<T, PickleError> {
    Err(io::Error::other(reason).into())
}

fn refuse_structure<T>() -> Result<T, PickleError> {
    Err(PickleError::Malformed("its pickle does not have the structure that PyTorch writes".to_owned()))
}

#[cfg(test)]
mod tests;
