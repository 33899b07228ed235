//! The thread that scripts run on. A worker runs on this one thread, whose stack size grows with the memory limit of
//! scripts.
//!
//! Values of scripts nest: arrays in arrays, closures that capture closures. Rhai copies, compares and drops them
//! recursively, with one stack frame per level. A stack overflow hits the guard page and ends the process with exit
//! code 72 and one line on standard error instead of a signal. Knows nothing about the content of scripts.

use std::cell::Cell;
use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::thread;

use nix::libc;

use super::sandbox::ScriptState;

/// Exit status of a process whose script stack overflowed.
pub const STACK_EXIT_STATUS: i32 = 72;

/// Bytes of stack in addition to those for nested values: engines run on the same thread.
const STACK_BASE: usize = 64 << 20;

/// Largest part of the stack, in bytes, that follows the memory limit of scripts: address space is limited, too.
const STACK_MAX: usize = 1 << 30;

/// A fault within this many bytes of the end of the stack counts as an overflow: the guard page, and what the system
/// keeps next to it.
const GUARD_BYTES: usize = 64 << 10;

thread_local! {
    // Constant-initialised and without a destructor, so that a signal handler can read them.
    /// The lowest address of the script stack; 0 on every other thread.
    static STACK_END: Cell<usize> = const { Cell::new(0) };
    static RUNNING: Cell<*const ScriptState> = const { Cell::new(std::ptr::null()) };
}

/// The previous handler of `SIGSEGV`; set once.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Runs `work` on a thread whose stack is large enough for scripts that may hold `memory` bytes.
///
/// # Errors
/// When the thread cannot be started or `work` panics; the error is the reason as text.
pub fn run_on_script_stack<T: Send>(memory: u64, work: impl FnOnce() -> T + Send) -> Result<T, String> {
    let size = STACK_BASE + usize::try_from(memory).unwrap_or(STACK_MAX).min(STACK_MAX);
    thread::scope(|scope| {
        let begin = move || {
            let top = 0u8;
            STACK_END.set((&raw const top as usize).saturating_sub(size));
            install_overflow_handler();
            work()
        };
        let thread = thread::Builder::new().name("worker".to_owned()).stack_size(size).spawn_scoped(scope, begin);
        let thread = thread.map_err(|error| format!("cannot start a thread with a stack of {size} bytes: {error}"))?;
        thread.join().map_err(|panic| format!("panicked: {}", flagperf_core::panic::panic_text(&*panic)))
    })
}

/// Marks a script as running on this thread, so that the message of a stack overflow contains its name.
pub(super) struct RunningScript<'h> {
    previous: *const ScriptState,
    _state: &'h ScriptState,
}

impl<'h> RunningScript<'h> {
    pub(super) fn begin(state: &'h ScriptState) -> Self {
        RunningScript { previous: RUNNING.replace(state), _state: state }
    }
}

impl Drop for RunningScript<'_> {
    fn drop(&mut self) {
        RUNNING.set(self.previous);
    }
}

/// Installs a handler for faults at the end of this thread's stack; it passes every other fault to the previous
/// handler.
fn install_overflow_handler() {
    PREVIOUS.get_or_init(|| {
        let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: `sigaction` is plain data for which zeros are valid. The handler has the signature that SA_SIGINFO
        // requires, runs on the alternate stack that the standard library sets up for every thread, and is never
        // unloaded.
        unsafe {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGSEGV, &action, previous.as_mut_ptr());
            previous.assume_init()
        }
    });
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the system passes a valid `siginfo_t` to a handler with SA_SIGINFO, and a fault has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let end = STACK_END.get();
    if end != 0 && address.abs_diff(end) <= GUARD_BYTES {
        exit_out_of_stack();
    }
    if let Some(previous) = PREVIOUS.get() {
        // SAFETY: `previous` was returned by the system; the faulting instruction runs again and reaches that handler.
        unsafe { libc::sigaction(signal, previous, std::ptr::null_mut()) };
    }
}

/// Exits the process after one line on standard error, without allocating.
fn exit_out_of_stack() -> ! {
    let mut line = [0u8; 400];
    let length = line.len();
    let mut rest = &mut line[..];
    // SAFETY: the pointer is null or was set by a `RunningScript`, which borrows the state on this thread.
    let state = unsafe { RUNNING.get().as_ref() };
    let place = state.map(|state| state.locate(state.last_call().line().unwrap_or(0)));
    let _ = match place {
        Some((name, line)) => writeln!(
            rest,
            "out of stack: values are nested too deeply (arrays in arrays, closures that capture closures); the worker \
             exits; script {name}:{line}"
        ),
        None => writeln!(rest, "out of stack: is the model's graph nested too deeply? the worker exits"),
    };
    let unused = rest.len();
    let _ = nix::unistd::write(std::io::stderr(), &line[..length - unused]);
    // SAFETY: `_exit` takes any status, runs no destructor and no handler, and does not return.
    unsafe { libc::_exit(STACK_EXIT_STATUS) }
}
