//! The functions of the interface for a [`Session`] in Rust: they convert raw arguments, make safe calls and return
//! statuses.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::slice;

use dlpark::ffi::DLManagedTensorVersioned;

use crate::abi::{
    FLAGPERF_COMPILED, FLAGPERF_ONNX, FlagperfBuffer, FlagperfLoad, FlagperfSession, FlagperfStatus, FlagperfValue,
};
use crate::failure::{c_string, catch_panic, run_fallible};
use crate::managed::{self, BorrowedInput};
use crate::{Artifact, DType, Engine, Error, LentMemory, Load, Session, ValueInfo};

/// A session behind the host's pointer, and the texts that the host has received from it.
struct LoadedSession<S> {
    session: S,
    inputs: DeclaredValues,
    outputs: DeclaredValues,
    device: CString,
    answer: CString,
}

/// The inputs or the outputs, with the texts that they point to.
struct DeclaredValues {
    values: Vec<FlagperfValue>,
    _texts: Vec<[CString; 2]>,
}

impl DeclaredValues {
    fn new(infos: &[ValueInfo]) -> Self {
        let texts: Vec<[CString; 2]> = infos.iter().map(|info| [c_string(&info.name), c_string(&info.spec)]).collect();
        let value = |[name, spec]: &[CString; 2]| FlagperfValue { name: name.as_ptr(), spec: spec.as_ptr() };
        DeclaredValues { values: texts.iter().map(value).collect(), _texts: texts }
    }
}

/// Returns the session behind the host's pointer.
///
/// # Safety
/// `session` comes from [`load`] of an engine whose sessions are `S`, it is not unloaded, and no other call on it runs.
/// The interface guarantees all three.
unsafe fn loaded<'a, S>(session: *mut FlagperfSession) -> &'a mut LoadedSession<S> {
    // SAFETY: the caller guarantees it.
    unsafe { &mut *session.cast::<LoadedSession<S>>() }
}

pub(crate) unsafe extern "C" fn check<E: Engine>() -> FlagperfStatus {
    run_fallible(E::check)
}

pub(crate) unsafe extern "C" fn load<E: Engine>(
    load: *const FlagperfLoad,
    session: *mut *mut FlagperfSession,
) -> FlagperfStatus {
    run_fallible(|| {
        // SAFETY: the struct and its texts live as long as the call.
        let (load, path, options) = unsafe { (&*load, CStr::from_ptr((*load).path), CStr::from_ptr((*load).options)) };
        if (load.struct_size as usize) < size_of::<FlagperfLoad>() {
            return Err(Error::failed("the host is older than this plug-in: its `FlagperfLoad` lacks fields"));
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
        let [inputs, outputs] = [made.inputs(), made.outputs()].map(|infos| DeclaredValues::new(&infos));
        let (device, answer) = (CString::default(), CString::default());
        let loaded = Box::new(LoadedSession { session: made, inputs, outputs, device, answer });
        // SAFETY: the host passes a valid location for the session.
        unsafe { *session = Box::into_raw(loaded).cast() };
        Ok(())
    })
}

fn precision(bit: u32) -> Result<DType, Error> {
    let precision = DType::from_bits(bit).filter(|precisions| precisions.len() == 1);
    precision.map(|all| all[0]).ok_or_else(|| Error::Failed(format!("unknown precision `{bit}`")))
}

pub(crate) unsafe extern "C" fn inputs<S: Session>(
    session: *mut FlagperfSession,
    count: *mut u32,
) -> *const FlagperfValue {
    // SAFETY: as `loaded` requires; the host passes a valid location for the count.
    unsafe { return_values(&loaded::<S>(session).inputs, count) }
}

pub(crate) unsafe extern "C" fn outputs<S: Session>(
    session: *mut FlagperfSession,
    count: *mut u32,
) -> *const FlagperfValue {
    // SAFETY: as `loaded` requires; the host passes a valid location for the count.
    unsafe { return_values(&loaded::<S>(session).outputs, count) }
}

/// Writes the number of values to `count` and returns a pointer to them.
///
/// # Safety
/// `count` can be written.
unsafe fn return_values(values: &DeclaredValues, count: *mut u32) -> *const FlagperfValue {
    // SAFETY: the caller guarantees it.
    unsafe { *count = values.values.len() as u32 };
    values.values.as_ptr()
}

pub(crate) unsafe extern "C" fn lend<S: Session>(
    session: *mut FlagperfSession,
    index: u32,
    bytes: u64,
    buffer: *mut FlagperfBuffer,
) -> FlagperfStatus {
    run_fallible(|| {
        // SAFETY: as `loaded` requires.
        let lent = unsafe { loaded::<S>(session) }.session.lend(index as usize, bytes as usize)?;
        let made = match lent {
            None => FlagperfBuffer { data: null_mut(), bytes, handle: null_mut() },
            Some(mut memory) => {
                let memory_bytes = memory.bytes_mut();
                let (data, bytes) = (memory_bytes.as_mut_ptr().cast(), memory_bytes.len() as u64);
                // The handle is one pointer wide, so the fat pointer of the trait object needs a box of its own.
                FlagperfBuffer { data, bytes, handle: Box::into_raw(Box::new(memory)).cast() }
            }
        };
        // SAFETY: the host passes a valid location for the buffer.
        unsafe { *buffer = made };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn give_back(_: *mut FlagperfSession, buffer: FlagperfBuffer) {
    if buffer.handle.is_null() {
        return;
    }
    // SAFETY: `lend` made the handle from such a box; the host gives each buffer back once.
    let memory = unsafe { Box::from_raw(buffer.handle.cast::<Box<dyn LentMemory>>()) };
    catch_panic((), || drop(memory));
}

pub(crate) unsafe extern "C" fn submit<S: Session>(
    session: *mut FlagperfSession,
    inputs: *const *mut DLManagedTensorVersioned,
    input_count: u32,
    outputs: *mut *mut DLManagedTensorVersioned,
    output_count: u32,
) -> FlagperfStatus {
    run_fallible(|| {
        // SAFETY: as `loaded` requires.
        let loaded = unsafe { loaded::<S>(session) };
        let count = input_count as usize;
        // SAFETY: the host passes `input_count` pointers.
        let tensors = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(inputs, count) } };
        // SAFETY: each points to an input as the interface describes it, and lives until `sync` has returned.
        let borrowed = tensors.iter().map(|tensor| unsafe { BorrowedInput::<S::Tensor>::read(*tensor) });
        let borrowed = borrowed.collect::<Result<Vec<_>, Error>>()?;
        let session_inputs: Vec<_> = borrowed.iter().map(BorrowedInput::as_input).collect();
        let made = loaded.session.submit(&session_inputs)?;
        if made.len() != output_count as usize {
            let reason = format!("the session returned {} outputs but declares {output_count}", made.len());
            return Err(Error::Failed(reason));
        }
        made.iter().try_for_each(managed::check_output)?;
        for (index, output) in made.into_iter().enumerate() {
            // SAFETY: the host passes one place for each output of the session.
            unsafe { *outputs.add(index) = managed::into_raw(output) };
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn sync<S: Session>(session: *mut FlagperfSession) -> FlagperfStatus {
    // SAFETY: as `loaded` requires.
    run_fallible(|| unsafe { loaded::<S>(session) }.session.sync())
}

pub(crate) unsafe extern "C" fn copy_to_host<S: Session>(
    session: *mut FlagperfSession,
    tensor: *const DLManagedTensorVersioned,
    to: *mut c_void,
    bytes: u64,
) -> FlagperfStatus {
    run_fallible(|| {
        // SAFETY: the host passes an output of this session that it has not deleted.
        let own = unsafe { managed::device_tensor::<S::Tensor>(tensor) };
        let own = own.ok_or_else(|| Error::failed("the output is in host memory already"))?;
        // SAFETY: `to` has `bytes` bytes, and nothing else accesses them during the call.
        let to = unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), bytes as usize) };
        // SAFETY: as `loaded` requires.
        unsafe { loaded::<S>(session) }.session.copy_to_host(own, to)
    })
}

pub(crate) unsafe extern "C" fn device_memory<S: Session>(session: *mut FlagperfSession) -> u64 {
    // SAFETY: as `loaded` requires.
    catch_panic(u64::MAX, || unsafe { loaded::<S>(session) }.session.device_memory().unwrap_or(u64::MAX))
}

pub(crate) unsafe extern "C" fn device<S: Session>(session: *mut FlagperfSession) -> *const c_char {
    // SAFETY: as `loaded` requires.
    let loaded = unsafe { loaded::<S>(session) };
    let session = &loaded.session;
    loaded.device = catch_panic(CString::default(), || c_string(&session.device()));
    loaded.device.as_ptr()
}

pub(crate) unsafe extern "C" fn threads<S: Session>(session: *mut FlagperfSession) -> u32 {
    // SAFETY: as `loaded` requires.
    catch_panic(0, || unsafe { loaded::<S>(session) }.session.threads() as u32)
}

pub(crate) unsafe extern "C" fn ask<S: Session>(
    session: *mut FlagperfSession,
    question: *const c_char,
    argument: *const c_char,
    answer: *mut *const c_char,
) -> FlagperfStatus {
    run_fallible(|| {
        // SAFETY: as `loaded` requires; the texts live as long as the call.
        let (loaded, question, argument) =
            unsafe { (loaded::<S>(session), read_text(question)?, read_text(argument)?) };
        loaded.answer = c_string(&loaded.session.ask(question, argument)?);
        // SAFETY: the host passes a valid location for the answer.
        unsafe { *answer = loaded.answer.as_ptr() };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn tune<S: Session>(
    session: *mut FlagperfSession,
    setting: *const c_char,
    value: *const c_char,
) -> FlagperfStatus {
    run_fallible(|| {
        // SAFETY: as `loaded` requires; the texts live as long as the call.
        let (loaded, setting, value) = unsafe { (loaded::<S>(session), read_text(setting)?, read_text(value)?) };
        loaded.session.tune(setting, value)?;
        loaded.inputs = DeclaredValues::new(&loaded.session.inputs());
        loaded.outputs = DeclaredValues::new(&loaded.session.outputs());
        Ok(())
    })
}

/// Reads a text of the host.
///
/// # Safety
/// `text` ends with a zero byte and lives as long as `'a`.
unsafe fn read_text<'a>(text: *const c_char) -> Result<&'a str, Error> {
    // SAFETY: the caller guarantees it.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(Error::failed)
}

pub(crate) unsafe extern "C" fn unload<S: Session>(session: *mut FlagperfSession) {
    // SAFETY: `load` made it from such a box, and the host unloads a session once.
    let loaded = unsafe { Box::from_raw(session.cast::<LoadedSession<S>>()) };
    catch_panic((), || drop(loaded));
}
