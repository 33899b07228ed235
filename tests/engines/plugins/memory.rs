//! Sessions, outputs and buffers are released exactly once, and never used after their release.

use std::path::Path;

use flagperf_core::tensor::{DType, Tensor};
use flagperf_engine::{Artifact, LoadOptions, Session, Value, find};

use super::fixture::compile;

/// A plug-in of `bad.c` that counts what the host has not released.
pub struct Plugin {
    library: std::path::PathBuf,
    _folder: tempfile::TempDir,
    live: libloading::Library,
}

impl Plugin {
    pub fn new(mode: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libplug.so");
        compile("tests/engines/plugins/bad.c", &library, &[&format!("MODE={mode}")])?;
        // SAFETY: the library belongs to this test and does nothing when it is loaded.
        let live = unsafe { libloading::Library::new(&library) }.unwrap();
        Some(Plugin { library, _folder: folder, live })
    }

    fn live_count(&self) -> i32 {
        // SAFETY: `bad.c` declares the function with this type.
        unsafe { self.live.get::<extern "C" fn() -> i32>("flagperf_test_live").unwrap()() }
    }

    pub fn load(&self) -> Box<dyn Session> {
        let options = LoadOptions { library: Some(self.library.clone()), batch_size: 2, ..LoadOptions::default() };
        find("plugin").unwrap().load(Artifact::Compiled(Path::new("any")), &options).unwrap()
    }
}

fn x() -> Tensor {
    Tensor::from_vec([2, 1000], (0..2000u16).map(f32::from).collect()).unwrap()
}

fn y() -> Vec<f64> {
    (0..2000u16).map(|x| f64::from(x).mul_add(2.0, 1.0)).collect()
}

#[test]
fn every_valid_dlpack_layout_in_host_memory_is_read() {
    for mode in ["GOOD", "OFFSET", "UNALIGNED", "NO_STRIDES"] {
        let Some(plugin) = Plugin::new(mode) else { return };
        let outputs = plugin.load().submit(&[Value::Host(x())]).unwrap();
        assert_eq!(outputs[0].to_host().unwrap().to_f64(), y(), "{mode}");
    }
}

#[test]
fn outputs_and_buffers_outlive_their_session() {
    let Some(plugin) = Plugin::new("GOOD") else { return };
    let mut session = plugin.load();
    let mut lent = session.lend(0, 8000).unwrap();
    lent.bytes_mut().fill(7);
    let outputs = session.submit(&[Value::Host(x())]).unwrap();
    let again = session.submit(&outputs).unwrap();
    drop(session);
    assert_eq!(plugin.live_count(), 4, "session, buffer and two outputs");
    assert_eq!(outputs[0].to_host().unwrap().to_f64(), y());
    let host = again[0].to_host().unwrap();
    drop((outputs, again));
    assert_eq!(plugin.live_count(), 3, "the host's tensor reads the plug-in's memory");
    assert_eq!(host.to_f64()[999], 2.0 * y()[999] + 1.0);
    assert!(lent.bytes().iter().all(|byte| *byte == 7));
    drop((host, lent));
    assert_eq!(plugin.live_count(), 0);
}

#[test]
fn a_refused_output_is_also_deleted() {
    for mode in ["OTHER_ROWS", "OTHER_TYPE", "UNKNOWN_TYPE", "NO_DATA", "STRIDED", "ON_DEVICE", "OTHER_DLPACK"] {
        let Some(plugin) = Plugin::new(mode) else { return };
        let mut session = plugin.load();
        session.submit(&[Value::Host(x())]).unwrap_err();
        drop(session);
        assert_eq!(plugin.live_count(), 0, "{mode}");
    }
}

#[test]
fn inputs_are_released_after_synchronisation() {
    let Some(plugin) = Plugin::new("GOOD") else { return };
    let mut session = plugin.load();
    let first = session.submit(&[Value::Host(x())]).unwrap();
    drop(session.submit(&first).unwrap());
    drop(first);
    assert_eq!(plugin.live_count(), 2, "the session, and the output that is an input of pending work");
    session.sync().unwrap();
    assert_eq!(plugin.live_count(), 1);
}

#[test]
fn a_thousand_sessions_leave_nothing_behind() {
    let Some(plugin) = Plugin::new("GOOD") else { return };
    let load_and_run = |plugin: &Plugin| {
        let mut session = plugin.load();
        let lent = session.lend(0, 8000).unwrap();
        let outputs = session.submit(&[Value::Host(x())]).unwrap();
        session.sync().unwrap();
        drop(session);
        drop((lent, outputs));
    };
    // A leak of one output per session grows by 2000 pages in a thousand sessions. Allocators and other tests grow
    // once.
    let mut before = resident_pages();
    let levels_off = (0..10).any(|_| {
        (0..1000).for_each(|_| load_and_run(&plugin));
        let grown = resident_pages() - before;
        before += grown;
        grown < 256
    });
    assert!(levels_off, "memory grows with every thousand sessions: {before} pages now");
    assert_eq!(plugin.live_count(), 0);
}

fn resident_pages() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn an_unsupported_precision_is_refused_with_the_supported_ones() {
    let Some(plugin) = Plugin::new("GOOD") else { return };
    let options =
        LoadOptions { library: Some(plugin.library.clone()), precision: DType::F16, ..LoadOptions::default() };
    let error = find("plugin").unwrap().load(Artifact::Compiled(Path::new("any")), &options).err().unwrap();
    assert_eq!(error.to_string(), "engine `bad` does not compute in `f16` (supported: f32)");
}
