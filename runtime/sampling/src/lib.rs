//! Samples the machine and its devices while a case runs: processor, memory, power, and the vendor's device monitor.
//!
//! The conductor reads each source in a thread of its own, on its own clock, so that a source that hangs delays no
//! other; the thread of such a source is abandoned. Readings are due at whole multiples of the interval. Counters and
//! devices are also read when a pass begins or ends, so that the energy of a pass does not depend on the moment of its
//! start. A vendor's script runs in a new process for each reading, because a script may exhaust its memory. The
//! samples go to files, and `run` and `verify` compute the figures from these files and the events.
//!
//! Never fails a run: the record states which source is missing, fails, hangs, or reports impossible or contradictory
//! values. Knows no vendor and no verdict.

mod context;
mod contradictions;
mod device;
mod energy;
mod figures;
mod files;
mod ipmi;
mod line_file;
mod memory;
mod processor;
mod reading_change;
mod rapl;
mod reading;
mod record;
mod sampler;
mod series;
mod source;
mod state;
mod windows;

pub use context::{DeviceCommand, SourceContext};
pub use device::{DEVICE_SOURCE, READ_DEVICES};
pub use energy::EnergySource;
pub use figures::{CaseUsage, DeviceIdentity, DeviceUsage, EnergyUsage, MemorySource, PhaseUsage, case_usage};
pub use files::MonitorFiles;
pub use reading::{Reading, Sample};
pub use reading_change::{MonitoredQuantity, ReadingChange};
pub use record::{MonitorRecord, SourceRecord};
pub use sampler::{Sampler, SamplerOptions};
pub use source::{Source, SourceReader, TABLE, check, find};
pub use windows::{MeasuredDevice, PassWindow, PhaseWindows, WindowCollector};
