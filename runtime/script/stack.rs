//! The thread that scripts run on: its stack grows with the memory that a script may hold, and where it is used up, the
//! process ends with one line instead of a signal.
//!
//! Values of scripts nest: arrays in arrays, closures that capture closures. Rhai copies, compares and drops them level
//! by level, each level on the stack. Knows no script.

use std::cell::Cell;
use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::thread;

use nix::libc;

use super::sandbox::Host;

/// Exit status of a process that ended because the stack of its scripts was used up.
pub const STACK_EXIT_STATUS: i32 = 72;

/// Stack beside what nested values take: for engines, which run on the same thread.
const STACK_BASE: usize = 64 << 20;

/// Memory limits beyond this make no larger stack: address space is limited, too.
const STACK_MAX: usize = 1 << 30;

/// How far from the end of the stack a fault is taken for an overflow: the guard page, and what the system keeps there.
const GUARD: usize = 64 << 10;

thread_local! {
    // Constants without a destructor, so that a signal handler can read them.
    /// The lowest address of the stack; 0 on every other thread.
    static STACK_END: Cell<usize> = const { Cell::new(0) };
    static RUNNING: Cell<*const Host> = const { Cell::new(std::ptr::null()) };
}

/// What handled faults before; set once.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Runs `work` on a thread whose stack suits scripts that may hold `memory` bytes.
///
/// # Errors
/// When the thread cannot be started, or `work` panics: in words.
pub fn on_script_stack<T: Send>(memory: u64, work: impl FnOnce() -> T + Send) -> Result<T, String> {
    let size = STACK_BASE + usize::try_from(memory).unwrap_or(STACK_MAX).min(STACK_MAX);
    thread::scope(|scope| {
        let begin = move || {
            let top = 0u8;
            STACK_END.set((&raw const top as usize).saturating_sub(size));
            end_on_overflow();
            work()
        };
        let thread = thread::Builder::new().name("worker".to_owned()).stack_size(size).spawn_scoped(scope, begin);
        let thread = thread.map_err(|error| format!("cannot start a thread with a stack of {size} bytes: {error}"))?;
        thread.join().map_err(|panic| format!("panicked: {}", flagperf_onnx::panic_text(&*panic)))
    })
}

/// While it lives, an overflow of the stack names the script.
pub(super) struct Running<'h> {
    before: *const Host,
    _host: &'h Host,
}

impl<'h> Running<'h> {
    pub(super) fn begin(host: &'h Host) -> Self {
        Running { before: RUNNING.replace(host), _host: host }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        RUNNING.set(self.before);
    }
}

/// Takes faults at the end of this thread's stack; every other goes to who handled them before.
fn end_on_overflow() {
    PREVIOUS.get_or_init(|| {
        let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: `sigaction` is plain data for which zeros are valid. The handler has the signature that SA_SIGINFO asks
        // for, runs on the alternate stack that the standard library gives every thread, and stays for the process's life.
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
    // SAFETY: the system hands a valid `siginfo_t` to a handler with SA_SIGINFO, and a fault has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let end = STACK_END.get();
    if end != 0 && address.abs_diff(end) <= GUARD {
        overflowed();
    }
    if let Some(previous) = PREVIOUS.get() {
        // SAFETY: `previous` is what the system gave; the faulting instruction runs again and meets that handler.
        unsafe { libc::sigaction(signal, previous, std::ptr::null_mut()) };
    }
}

/// Ends the process with one line on standard error, without allocating.
fn overflowed() -> ! {
    let mut line = [0u8; 400];
    let length = line.len();
    let mut rest = &mut line[..];
    // SAFETY: the pointer is null or that of a `Running`, which borrows the host on this thread.
    let host = unsafe { RUNNING.get().as_ref() };
    let _ = match host {
        Some(host) => writeln!(
            rest,
            "out of stack: values nest too deep (arrays in arrays, closures that capture closures); the worker ends; \
             script {}:{}",
            host.name,
            host.place().line().unwrap_or(0)
        ),
        None => writeln!(rest, "out of stack: is the model's graph nested too deep? the worker ends"),
    };
    let unused = rest.len();
    let _ = nix::unistd::write(std::io::stderr(), &line[..length - unused]);
    // SAFETY: `_exit` takes any status, runs no destructor and no handler, and does not return.
    unsafe { libc::_exit(STACK_EXIT_STATUS) }
}
