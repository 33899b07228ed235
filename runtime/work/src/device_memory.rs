//! Peak memory in use on the devices of a phase, from readings that a background thread takes.
//!
//! Reads no clock. Knows nothing about the internals of engines.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indexmap::IndexMap;

use flagperf_core::units::Bytes;
use flagperf_monitor::Monitor;
use flagperf_script::Sessions;

/// Time between two readings. A reading is a call of the device's driver that takes some microseconds and does not use
/// the device, so that ten per second do not affect the measured time. A peak shorter than this interval may be missed.
const INTERVAL: Duration = Duration::from_millis(100);

/// Records the peak memory of the devices of a phase. Readings are taken until it is dropped.
pub struct DeviceMemorySampler {
    monitor: Option<&'static dyn Monitor>,
    peaks: Arc<Mutex<Peaks>>,
    /// The thread, which ends when the sender is dropped.
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

/// The peak in bytes by the ids of the devices that are read; `None` before the first reading.
type Peaks = IndexMap<String, Option<u64>>;

impl DeviceMemorySampler {
    /// Starts reading every device of the vendor's monitor, because the device is not known before loading. Nothing is
    /// read without a monitor, or when the monitor's devices have no memory of their own.
    pub fn start(monitor: Option<&'static dyn Monitor>) -> Self {
        let ids = monitor.map(|monitor| monitor.device_ids()).unwrap_or_default();
        let peaks = Arc::new(Mutex::new(ids.into_iter().map(|id| (id, None)).collect::<Peaks>()));
        let thread = monitor.filter(|_| !lock(&peaks).is_empty()).map(|monitor| {
            let (running, stopped) = channel::<()>();
            let peaks = peaks.clone();
            let thread = std::thread::spawn(move || {
                loop {
                    read_devices(monitor, &peaks);
                    if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            });
            (running, thread)
        });
        DeviceMemorySampler { monitor, peaks, thread }
    }

    /// Restricts reading to the devices of these sessions. Their peaks during loading are kept.
    pub fn restrict_to(&self, sessions: &Sessions) {
        let wanted: Vec<String> =
            reported_memory(sessions).keys().filter_map(|device| self.monitor_id(device)).collect();
        let mut peaks = lock(&self.peaks);
        peaks.retain(|id, _| wanted.contains(id));
        for id in wanted {
            peaks.entry(id).or_default();
        }
    }

    /// Returns the sum of the peaks of the devices of these sessions, each device once. The memory that an engine
    /// reports for its device counts as a reading. `None` when neither the monitor nor an engine reports memory.
    pub fn peak(&self, sessions: &Sessions) -> Option<Bytes> {
        if let (Some(monitor), Some(_)) = (self.monitor, &self.thread) {
            read_devices(monitor, &self.peaks);
        }
        let device_peak = |(device, reported): (String, Option<Bytes>)| {
            let id = self.monitor_id(&device).unwrap_or(device);
            let mut peaks = lock(&self.peaks);
            let peak = peaks.entry(id).or_default();
            *peak = (*peak).max(reported.map(|reported| reported.0));
            *peak
        };
        reported_memory(sessions).into_iter().filter_map(device_peak).reduce(|a, b| a + b).map(Bytes)
    }

    /// Returns the monitor's id of the device with the engine's name `device`.
    fn monitor_id(&self, device: &str) -> Option<String> {
        self.monitor?.device(device)?.id
    }
}

impl Drop for DeviceMemorySampler {
    fn drop(&mut self) {
        if let Some((running, thread)) = self.thread.take() {
            drop(running);
            let _ = thread.join();
        }
    }
}

/// Returns the devices of the sessions by their engines' names, with the largest amount of memory that an engine
/// reports for each: several sessions on one device all report the whole device.
fn reported_memory(sessions: &Sessions) -> IndexMap<String, Option<Bytes>> {
    let mut devices: IndexMap<String, Option<Bytes>> = IndexMap::new();
    for session in sessions.values().filter_map(|session| session.lock().ok()) {
        let reported = session.device_memory();
        let largest = devices.entry(session.facts().device).or_default();
        *largest = largest.map(|bytes| bytes.0).max(reported.map(|bytes| bytes.0)).map(Bytes);
    }
    devices
}

/// Reads each device once and updates its peak.
fn read_devices(monitor: &dyn Monitor, peaks: &Mutex<Peaks>) {
    let ids: Vec<String> = lock(peaks).keys().cloned().collect();
    for id in ids {
        let used = monitor.memory_used(&id).map(|used| used.0);
        if let Some(peak) = lock(peaks).get_mut(&id) {
            *peak = (*peak).max(used);
        }
    }
}

fn lock(peaks: &Mutex<Peaks>) -> std::sync::MutexGuard<'_, Peaks> {
    peaks.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use flagperf_onnx::ValueInfo;

    use super::*;
    use flagperf_engine::{EngineError, Session, SessionFacts, Value};
    use flagperf_monitor::DeviceFacts;

    /// A monitor of two devices, which reports `used` for the first.
    struct TestMonitor {
        used: AtomicU64,
        readings: AtomicU64,
    }

    impl TestMonitor {
        fn leaked(used: u64) -> &'static Self {
            Box::leak(Box::new(TestMonitor { used: AtomicU64::new(used), readings: AtomicU64::new(0) }))
        }

        /// Sets the memory in use and waits until it has been read.
        fn set_used(&self, used: u64) {
            self.used.store(used, Ordering::SeqCst);
            let before = self.readings.load(Ordering::SeqCst);
            while self.readings.load(Ordering::SeqCst) < before + 3 {
                std::thread::yield_now();
            }
        }
    }

    impl Monitor for TestMonitor {
        fn name(&self) -> &'static str {
            "test"
        }

        fn about(&self) -> &'static str {
            "for tests"
        }

        fn check(&self) -> Result<String, String> {
            Ok(String::new())
        }

        fn device(&self, name: &str) -> Option<DeviceFacts> {
            Some(DeviceFacts { name: name.to_owned(), driver: None, id: Some(name.strip_prefix("chip:")?.to_owned()) })
        }

        fn device_ids(&self) -> Vec<String> {
            vec!["0".to_owned(), "1".to_owned()]
        }

        fn memory_used(&self, id: &str) -> Option<Bytes> {
            let used = if id == "0" { self.used.load(Ordering::SeqCst) } else { 5 };
            self.readings.fetch_add(1, Ordering::SeqCst);
            Some(Bytes(used))
        }
    }

    /// A session on the named device that reports this much memory in use, or none.
    struct TestSession(&'static str, Option<u64>);

    impl Session for TestSession {
        fn inputs(&self) -> &[ValueInfo] {
            &[]
        }

        fn outputs(&self) -> &[ValueInfo] {
            &[]
        }

        fn compute(&mut self, _: &[Value]) -> Result<Vec<Value>, EngineError> {
            Ok(Vec::new())
        }

        fn facts(&self) -> SessionFacts {
            SessionFacts { device: self.0.to_owned(), ..SessionFacts::default() }
        }

        fn device_memory(&self) -> Option<Bytes> {
            self.1.map(Bytes)
        }
    }

    fn sessions(all: impl IntoIterator<Item = TestSession>) -> Sessions {
        let lock = |session: TestSession| Arc::new(Mutex::new(Box::new(session) as Box<dyn Session>));
        all.into_iter().enumerate().map(|(index, session)| (index.to_string(), lock(session))).collect()
    }

    #[test]
    fn a_peak_during_loading_is_kept_after_memory_is_freed() {
        let monitor = TestMonitor::leaked(10);
        let memory = DeviceMemorySampler::start(Some(monitor));
        monitor.set_used(900);
        let sessions = sessions([TestSession("chip:0", None)]);
        memory.restrict_to(&sessions);
        monitor.set_used(20);
        assert_eq!(memory.peak(&sessions), Some(Bytes(900)));
    }

    #[test]
    fn a_device_of_several_sessions_counts_once() {
        let memory = DeviceMemorySampler::start(None);
        let same = sessions([TestSession("chip:0", Some(70)), TestSession("chip:0", Some(80))]);
        memory.restrict_to(&same);
        assert_eq!(memory.peak(&same), Some(Bytes(80)));
        let two =
            sessions([TestSession("chip:0", Some(70)), TestSession("chip:1", Some(80)), TestSession("chip:1", None)]);
        assert_eq!(DeviceMemorySampler::start(None).peak(&two), Some(Bytes(150)));
    }

    #[test]
    fn memory_reported_by_an_engine_counts_as_a_reading_and_no_report_gives_no_peak() {
        let monitor = TestMonitor::leaked(10);
        let memory = DeviceMemorySampler::start(Some(monitor));
        let reporting = sessions([TestSession("chip:0", Some(500))]);
        memory.restrict_to(&reporting);
        assert_eq!(memory.peak(&reporting), Some(Bytes(500)));
        let silent = sessions([TestSession("cpu", None)]);
        memory.restrict_to(&silent);
        assert_eq!(memory.peak(&silent), None);
    }
}
