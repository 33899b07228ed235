//! How much memory is in use on the devices of a phase: the largest of samples that a thread beside the work takes.
//!
//! Reads no clock and knows no engine's inside.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indexmap::IndexMap;

use super::build::Sessions;
use crate::monitor::Monitor;
use crate::units::Bytes;

/// Between two samples. A sample is a call of the device's driver that takes some microseconds and nothing of the device,
/// so ten in a second leave the measured time alone; a peak that is shorter than this may be missed.
const INTERVAL: Duration = Duration::from_millis(100);

/// The largest samples of the devices of a phase. Samples are taken until it is dropped.
pub struct DeviceMemory {
    monitor: Option<&'static dyn Monitor>,
    samples: Arc<Mutex<Samples>>,
    /// Dropped to end the thread.
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

/// The most that was seen in use, by the ids of the devices that are looked at; `None` before there is a sample.
type Samples = IndexMap<String, Option<u64>>;

impl DeviceMemory {
    /// Begins to sample every device of the vendor's monitor, for before loading nobody knows which one it will be. Without
    /// a monitor, or with one of devices without memory of their own, nothing is sampled.
    pub fn start(monitor: Option<&'static dyn Monitor>) -> Self {
        let ids = monitor.map(|monitor| monitor.devices()).unwrap_or_default();
        let samples = Arc::new(Mutex::new(ids.into_iter().map(|id| (id, None)).collect::<Samples>()));
        let sampled = monitor.filter(|_| !lock(&samples).is_empty());
        let running = sampled.map(|monitor| {
            let (running, stopped) = channel::<()>();
            let samples = samples.clone();
            let thread = std::thread::spawn(move || {
                loop {
                    sample(monitor, &samples);
                    if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            });
            (running, thread)
        });
        DeviceMemory { monitor, samples, running }
    }

    /// From now on looks only at the devices that these sessions are on. What was seen of them before, while they were
    /// loaded, stays.
    pub fn watch(&self, sessions: &Sessions) {
        let wanted: Vec<String> = devices(sessions).keys().filter_map(|device| self.id(device)).collect();
        let mut samples = lock(&self.samples);
        samples.retain(|id, _| wanted.contains(id));
        for id in wanted {
            samples.entry(id).or_default();
        }
    }

    /// The most that was seen in use so far on the devices of these sessions, each device once. What an engine says of its
    /// device counts as a sample, too; `None` when neither the monitor nor an engine says anything.
    pub fn max(&self, sessions: &Sessions) -> Option<Bytes> {
        if let (Some(monitor), Some(_)) = (self.monitor, &self.running) {
            sample(monitor, &self.samples);
        }
        let of_device = |(device, said): (String, Option<Bytes>)| {
            let id = self.id(&device).unwrap_or(device);
            let mut samples = lock(&self.samples);
            let most = samples.entry(id).or_default();
            *most = (*most).max(said.map(|said| said.0));
            *most
        };
        devices(sessions).into_iter().filter_map(of_device).reduce(|a, b| a + b).map(Bytes)
    }

    /// The monitor's id of a device by its engine's name.
    fn id(&self, device: &str) -> Option<String> {
        self.monitor?.device(device)?.id
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Some((running, thread)) = self.running.take() {
            drop(running);
            let _ = thread.join();
        }
    }
}

/// The devices of sessions by their engines' names, with the largest that an engine says of each: several sessions on a
/// device all say the whole of it.
fn devices(sessions: &Sessions) -> IndexMap<String, Option<Bytes>> {
    let mut devices: IndexMap<String, Option<Bytes>> = IndexMap::new();
    for session in sessions.values().filter_map(|session| session.lock().ok()) {
        let said = session.device_memory();
        let most = devices.entry(session.device()).or_default();
        *most = most.map(|bytes| bytes.0).max(said.map(|bytes| bytes.0)).map(Bytes);
    }
    devices
}

/// Takes one sample of each device that is looked at.
fn sample(monitor: &dyn Monitor, samples: &Mutex<Samples>) {
    let ids: Vec<String> = lock(samples).keys().cloned().collect();
    for id in ids {
        let used = monitor.memory_used(&id).map(|used| used.0);
        if let Some(most) = lock(samples).get_mut(&id) {
            *most = (*most).max(used);
        }
    }
}

fn lock(samples: &Mutex<Samples>) -> std::sync::MutexGuard<'_, Samples> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use flagperf_onnx::ValueInfo;

    use super::*;
    use crate::engine::{EngineError, Session, Value};
    use crate::monitor::DeviceFacts;

    /// A monitor of two devices; what is in use on the first is read from `used`.
    struct Gauge {
        used: AtomicU64,
        taken: AtomicU64,
    }

    impl Gauge {
        fn leaked(used: u64) -> &'static Self {
            Box::leak(Box::new(Gauge { used: AtomicU64::new(used), taken: AtomicU64::new(0) }))
        }

        /// Sets what is in use, and waits until it was sampled.
        fn show(&self, used: u64) {
            self.used.store(used, Ordering::SeqCst);
            let before = self.taken.load(Ordering::SeqCst);
            while self.taken.load(Ordering::SeqCst) < before + 3 {
                std::thread::yield_now();
            }
        }
    }

    impl Monitor for Gauge {
        fn name(&self) -> &'static str {
            "gauge"
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

        fn devices(&self) -> Vec<String> {
            vec!["0".to_owned(), "1".to_owned()]
        }

        fn memory_used(&self, id: &str) -> Option<Bytes> {
            let used = if id == "0" { self.used.load(Ordering::SeqCst) } else { 5 };
            self.taken.fetch_add(1, Ordering::SeqCst);
            Some(Bytes(used))
        }
    }

    /// A session that says what is in use on its device, or nothing.
    struct Said(&'static str, Option<u64>);

    impl Session for Said {
        fn inputs(&self) -> &[ValueInfo] {
            &[]
        }

        fn outputs(&self) -> &[ValueInfo] {
            &[]
        }

        fn submit(&mut self, _: &[Value]) -> Result<Vec<Value>, EngineError> {
            Ok(Vec::new())
        }

        fn device(&self) -> String {
            self.0.to_owned()
        }

        fn device_memory(&self) -> Option<Bytes> {
            self.1.map(Bytes)
        }
    }

    fn sessions(all: impl IntoIterator<Item = Said>) -> Sessions {
        let session = |said: Said| Arc::new(Mutex::new(Box::new(said) as Box<dyn Session>));
        all.into_iter().enumerate().map(|(index, said)| (index.to_string(), session(said))).collect()
    }

    #[test]
    fn a_peak_while_loading_or_computing_is_kept_when_it_is_over() {
        let gauge = Gauge::leaked(10);
        let memory = DeviceMemory::start(Some(gauge));
        gauge.show(900);
        let sessions = sessions([Said("chip:0", None)]);
        memory.watch(&sessions);
        gauge.show(20);
        assert_eq!(memory.max(&sessions), Some(Bytes(900)));
    }

    #[test]
    fn a_device_of_several_sessions_counts_once() {
        let memory = DeviceMemory::start(None);
        let same = sessions([Said("chip:0", Some(70)), Said("chip:0", Some(80))]);
        memory.watch(&same);
        assert_eq!(memory.max(&same), Some(Bytes(80)));
        let two = sessions([Said("chip:0", Some(70)), Said("chip:1", Some(80)), Said("chip:1", None)]);
        assert_eq!(DeviceMemory::start(None).max(&two), Some(Bytes(150)));
    }

    #[test]
    fn what_an_engine_says_is_a_sample_of_the_device_and_nothing_is_made_up() {
        let gauge = Gauge::leaked(10);
        let memory = DeviceMemory::start(Some(gauge));
        let said = sessions([Said("chip:0", Some(500))]);
        memory.watch(&said);
        assert_eq!(memory.max(&said), Some(Bytes(500)));
        let silent = sessions([Said("cpu", None)]);
        memory.watch(&silent);
        assert_eq!(memory.max(&silent), None);
    }
}
