//! What is lent, given and loaded comes back: nothing leaks, nothing is read or deleted when it is gone.

use std::path::Path;

use flagperf::engine::{Artifact, Options, Session, Value, find};
use flagperf::tensor::{DType, Tensor};

use crate::fixture::compile;

/// A plug-in of `bad.c`, and how much of what it gave is not back.
pub struct Plugin {
    library: std::path::PathBuf,
    _folder: tempfile::TempDir,
    live: libloading::Library,
}

impl Plugin {
    pub fn new(mode: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libplug.so");
        compile("tests/plugins/bad.c", &library, &[&format!("MODE={mode}")])?;
        // SAFETY: the library is this test's own and does nothing when it is loaded.
        let live = unsafe { libloading::Library::new(&library) }.unwrap();
        Some(Plugin { library, _folder: folder, live })
    }

    fn live(&self) -> i32 {
        // SAFETY: `bad.c` declares it so.
        unsafe { self.live.get::<extern "C" fn() -> i32>("flagperf_test_live").unwrap()() }
    }

    pub fn load(&self) -> Box<dyn Session> {
        let options = Options { library: Some(self.library.clone()), batch_size: 2, ..Options::default() };
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
fn every_layout_that_dlpack_allows_in_host_memory_is_read() {
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
    assert_eq!(plugin.live(), 4, "session, buffer and two outputs");
    assert_eq!(outputs[0].to_host().unwrap().to_f64(), y());
    let host = again[0].to_host().unwrap();
    drop((outputs, again));
    assert_eq!(plugin.live(), 3, "the host's tensor reads the plug-in's memory");
    assert_eq!(host.to_f64()[999], 2.0 * y()[999] + 1.0);
    assert!(lent.bytes().iter().all(|byte| *byte == 7));
    drop((host, lent));
    assert_eq!(plugin.live(), 0);
}

#[test]
fn an_output_that_is_refused_is_deleted_all_the_same() {
    for mode in ["OTHER_ROWS", "OTHER_TYPE", "UNKNOWN_TYPE", "NO_DATA", "STRIDED", "ON_DEVICE", "OTHER_DLPACK"] {
        let Some(plugin) = Plugin::new(mode) else { return };
        let mut session = plugin.load();
        session.submit(&[Value::Host(x())]).unwrap_err();
        drop(session);
        assert_eq!(plugin.live(), 0, "{mode}");
    }
}

#[test]
fn inputs_are_let_go_when_they_are_computed() {
    let Some(plugin) = Plugin::new("GOOD") else { return };
    let mut session = plugin.load();
    let first = session.submit(&[Value::Host(x())]).unwrap();
    drop(session.submit(&first).unwrap());
    drop(first);
    assert_eq!(plugin.live(), 2, "the session, and the output that is an input under way");
    session.sync().unwrap();
    assert_eq!(plugin.live(), 1);
}

#[test]
fn a_thousand_sessions_leave_nothing_behind() {
    let Some(plugin) = Plugin::new("GOOD") else { return };
    let round = |plugin: &Plugin| {
        let mut session = plugin.load();
        let lent = session.lend(0, 8000).unwrap();
        let outputs = session.submit(&[Value::Host(x())]).unwrap();
        session.sync().unwrap();
        drop(session);
        drop((lent, outputs));
    };
    // A leak of one output a round takes 2000 pages of every thousand rounds; what an allocator or another test takes,
    // it takes once.
    let mut before = resident_pages();
    let levels_off = (0..10).any(|_| {
        (0..1000).for_each(|_| round(&plugin));
        let grown = resident_pages() - before;
        before += grown;
        grown < 256
    });
    assert!(levels_off, "every thousand sessions take memory: {before} pages now");
    assert_eq!(plugin.live(), 0);
}

fn resident_pages() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_precision_that_a_plug_in_lacks_is_refused_by_its_name() {
    let Some(plugin) = Plugin::new("GOOD") else { return };
    let options = Options { library: Some(plugin.library.clone()), precision: DType::F16, ..Options::default() };
    let error = find("plugin").unwrap().load(Artifact::Compiled(Path::new("any")), &options).err().unwrap();
    assert_eq!(error.to_string(), "engine `bad` does not compute in `f16` (it has: f32)");
}
