//! The functions of the interface for a [`Session`] in Rust: raw values in, safe calls, statuses out.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::slice;

use dlpark::ffi::DLManagedTensorVersioned;

use crate::abi::{
    FLAGPERF_COMPILED, FLAGPERF_ONNX, FlagperfBuffer, FlagperfLoad, FlagperfSession, FlagperfStatus, FlagperfValue,
};
use crate::failure::{c_string, guard, infallible};
use crate::managed::{self, Lent};
use crate::{Artifact, DType, Engine, Error, LentMemory, Load, Session, ValueInfo};

/// What the host holds: a session and the texts that it was told.
struct Loaded<S> {
    session: S,
    inputs: Values,
    outputs: Values,
    device: CString,
    answer: CString,
}

/// Inputs or outputs with the texts that they point to.
struct Values {
    values: Vec<FlagperfValue>,
    _texts: Vec<[CString; 2]>,
}

impl Values {
    fn new(infos: &[ValueInfo]) -> Self {
        let texts: Vec<[CString; 2]> = infos.iter().map(|info| [c_string(&info.name), c_string(&info.spec)]).collect();
        let value = |[name, spec]: &[CString; 2]| FlagperfValue { name: name.as_ptr(), spec: spec.as_ptr() };
        Values { values: texts.iter().map(value).collect(), _texts: texts }
    }
}

/// The session behind the host's pointer.
///
/// # Safety
/// `session` comes from [`load`] of an engine whose sessions are `S`, is not unloaded, and no other call on it runs: the
/// interface promises all three.
unsafe fn loaded<'a, S>(session: *mut FlagperfSession) -> &'a mut Loaded<S> {
    // SAFETY: by the caller.
    unsafe { &mut *session.cast::<Loaded<S>>() }
}

pub(crate) unsafe extern "C" fn check<E: Engine>() -> FlagperfStatus {
    guard(E::check)
}

pub(crate) unsafe extern "C" fn load<E: Engine>(
    load: *const FlagperfLoad,
    session: *mut *mut FlagperfSession,
) -> FlagperfStatus {
    guard(|| {
        // SAFETY: the host lends the struct and its texts for the time of the call.
        let (load, path, options) = unsafe { (&*load, CStr::from_ptr((*load).path), CStr::from_ptr((*load).options)) };
        if (load.struct_size as usize) < size_of::<FlagperfLoad>() {
            return Err(Error::failed("the host is older than this plug-in: it says too little about what to load"));
        }
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        // SAFETY: a text of the struct, or null.
        let log_folder = (!load.log_folder.is_null()).then(|| unsafe { CStr::from_ptr(load.log_folder) });
        let made = E::load(&Load {
            artifact: match load.artifact {
                FLAGPERF_ONNX => Artifact::Onnx(path),
                FLAGPERF_COMPILED => Artifact::Compiled(path),
                kind => return Err(Error::Failed(format!("unknown kind of artifact `{kind}`"))),
            },
            options: options.to_str().map_err(Error::failed)?,
            threads: load.threads as usize,
            batch_size: load.batch_size as usize,
            precision: precision(load.precision)?,
            log_folder: log_folder.map(|folder| Path::new(OsStr::from_bytes(folder.to_bytes()))),
        })?;
        let [inputs, outputs] = [made.inputs(), made.outputs()].map(|infos| Values::new(&infos));
        let (device, answer) = (CString::default(), CString::default());
        let loaded = Box::new(Loaded { session: made, inputs, outputs, device, answer });
        // SAFETY: the host lends the place.
        unsafe { *session = Box::into_raw(loaded).cast() };
        Ok(())
    })
}

fn precision(bit: u32) -> Result<DType, Error> {
    let only = DType::from_bits(bit).filter(|precisions| precisions.len() == 1);
    only.map(|precisions| precisions[0]).ok_or_else(|| Error::Failed(format!("unknown precision `{bit}`")))
}

pub(crate) unsafe extern "C" fn inputs<S: Session>(
    session: *mut FlagperfSession,
    count: *mut u32,
) -> *const FlagperfValue {
    // SAFETY: as `loaded` asks; the host lends the place of the count.
    unsafe { tell(&loaded::<S>(session).inputs, count) }
}

pub(crate) unsafe extern "C" fn outputs<S: Session>(
    session: *mut FlagperfSession,
    count: *mut u32,
) -> *const FlagperfValue {
    // SAFETY: as `loaded` asks; the host lends the place of the count.
    unsafe { tell(&loaded::<S>(session).outputs, count) }
}

/// # Safety
/// `count` can be written.
unsafe fn tell(values: &Values, count: *mut u32) -> *const FlagperfValue {
    // SAFETY: by the caller.
    unsafe { *count = values.values.len() as u32 };
    values.values.as_ptr()
}

pub(crate) unsafe extern "C" fn lend<S: Session>(
    session: *mut FlagperfSession,
    index: u32,
    bytes: u64,
    buffer: *mut FlagperfBuffer,
) -> FlagperfStatus {
    guard(|| {
        // SAFETY: as `loaded` asks.
        let lent = unsafe { loaded::<S>(session) }.session.lend(index as usize, bytes as usize)?;
        let made = match lent {
            None => FlagperfBuffer { data: null_mut(), bytes, handle: null_mut() },
            Some(mut memory) => {
                let memory_bytes = memory.bytes_mut();
                let (data, bytes) = (memory_bytes.as_mut_ptr().cast(), memory_bytes.len() as u64);
                // A box in a box: the handle is one pointer wide.
                FlagperfBuffer { data, bytes, handle: Box::into_raw(Box::new(memory)).cast() }
            }
        };
        // SAFETY: the host lends the place.
        unsafe { *buffer = made };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn give_back(_: *mut FlagperfSession, buffer: FlagperfBuffer) {
    if buffer.handle.is_null() {
        return;
    }
    // SAFETY: `lend` made the handle from such a box; the host gives each back once.
    let memory = unsafe { Box::from_raw(buffer.handle.cast::<Box<dyn LentMemory>>()) };
    infallible((), || drop(memory));
}

pub(crate) unsafe extern "C" fn submit<S: Session>(
    session: *mut FlagperfSession,
    inputs: *const *mut DLManagedTensorVersioned,
    input_count: u32,
    outputs: *mut *mut DLManagedTensorVersioned,
    output_count: u32,
) -> FlagperfStatus {
    guard(|| {
        let mark: *mut c_void = session.cast();
        // SAFETY: as `loaded` asks.
        let loaded = unsafe { loaded::<S>(session) };
        let count = input_count as usize;
        // SAFETY: the host lends as many pointers as it says.
        let given = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(inputs, count) } };
        // SAFETY: each points to an input as the interface describes it; it stays until `sync`.
        let lent = given.iter().map(|tensor| unsafe { Lent::<S::Tensor>::read(*tensor, mark) });
        let lent = lent.collect::<Result<Vec<_>, Error>>()?;
        let given: Vec<_> = lent.iter().map(Lent::input).collect();
        let made = loaded.session.submit(&given)?;
        if made.len() != output_count as usize {
            let reason = format!("the session gave {} outputs, it has {output_count}", made.len());
            return Err(Error::Failed(reason));
        }
        made.iter().try_for_each(managed::check)?;
        for (index, output) in made.into_iter().enumerate() {
            // SAFETY: the host lends as many places as the session has outputs.
            unsafe { *outputs.add(index) = managed::give(output, mark) };
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn sync<S: Session>(session: *mut FlagperfSession) -> FlagperfStatus {
    // SAFETY: as `loaded` asks.
    guard(|| unsafe { loaded::<S>(session) }.session.sync())
}

pub(crate) unsafe extern "C" fn copy_to_host<S: Session>(
    session: *mut FlagperfSession,
    tensor: *const DLManagedTensorVersioned,
    to: *mut c_void,
    bytes: u64,
) -> FlagperfStatus {
    guard(|| {
        // SAFETY: the host passes an output of this session that it has not deleted.
        let own = unsafe { managed::own::<S::Tensor>(tensor) };
        let own = own.ok_or_else(|| Error::failed("the output is in host memory already"))?;
        // SAFETY: the host lends the place, and nobody else writes to it.
        let to = unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), bytes as usize) };
        // SAFETY: as `loaded` asks.
        unsafe { loaded::<S>(session) }.session.copy_to_host(own, to)
    })
}

pub(crate) unsafe extern "C" fn device_memory<S: Session>(session: *mut FlagperfSession) -> u64 {
    // SAFETY: as `loaded` asks.
    infallible(u64::MAX, || unsafe { loaded::<S>(session) }.session.device_memory().unwrap_or(u64::MAX))
}

pub(crate) unsafe extern "C" fn device<S: Session>(session: *mut FlagperfSession) -> *const c_char {
    // SAFETY: as `loaded` asks.
    let loaded = unsafe { loaded::<S>(session) };
    let session = &loaded.session;
    loaded.device = infallible(CString::default(), || c_string(&session.device()));
    loaded.device.as_ptr()
}

pub(crate) unsafe extern "C" fn threads<S: Session>(session: *mut FlagperfSession) -> u32 {
    // SAFETY: as `loaded` asks.
    infallible(0, || unsafe { loaded::<S>(session) }.session.threads() as u32)
}

pub(crate) unsafe extern "C" fn ask<S: Session>(
    session: *mut FlagperfSession,
    question: *const c_char,
    argument: *const c_char,
    answer: *mut *const c_char,
) -> FlagperfStatus {
    guard(|| {
        // SAFETY: as `loaded` asks; the host lends the texts for the time of the call.
        let (loaded, question, argument) = unsafe { (loaded::<S>(session), text(question)?, text(argument)?) };
        loaded.answer = c_string(&loaded.session.ask(question, argument)?);
        // SAFETY: the host lends the place.
        unsafe { *answer = loaded.answer.as_ptr() };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn tune<S: Session>(
    session: *mut FlagperfSession,
    setting: *const c_char,
    value: *const c_char,
) -> FlagperfStatus {
    guard(|| {
        // SAFETY: as `loaded` asks; the host lends the texts for the time of the call.
        let (loaded, setting, value) = unsafe { (loaded::<S>(session), text(setting)?, text(value)?) };
        loaded.session.tune(setting, value)?;
        loaded.inputs = Values::new(&loaded.session.inputs());
        loaded.outputs = Values::new(&loaded.session.outputs());
        Ok(())
    })
}

/// A text of the host's.
///
/// # Safety
/// `text` ends with a zero byte, and stays as long as it is used.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Error> {
    // SAFETY: by the caller.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(Error::failed)
}

pub(crate) unsafe extern "C" fn unload<S: Session>(session: *mut FlagperfSession) {
    // SAFETY: `load` made it from such a box, and the host unloads a session once.
    let loaded = unsafe { Box::from_raw(session.cast::<Loaded<S>>()) };
    infallible((), || drop(loaded));
}
