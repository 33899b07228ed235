//! Properties of a machine: processor, memory, kernel.

use serde::{Deserialize, Serialize};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use super::{ContainerRecord, ProcessorClock};
use flagperf_core::units::Bytes;

/// Properties of a machine. Unknown text is empty, and unknown numbers are zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Machine {
    /// Host name.
    pub hostname: String,
    /// Processor model.
    pub cpu: String,
    /// Number of physical cores.
    pub cores: usize,
    /// Number of hardware threads that this process may use.
    pub threads: usize,
    /// Total memory.
    pub memory_bytes: Bytes,
    /// Operating system and its version.
    pub system: String,
    /// Kernel version.
    pub kernel: String,
    /// Architecture: `x86_64`, `aarch64`.
    pub architecture: String,
    /// How the system sets the processor's clock.
    #[serde(default)]
    pub processor_clock: ProcessorClock,
    /// The container that contains this program; `None` when nothing indicates one.
    #[serde(default)]
    pub container: Option<ContainerRecord>,
}

impl Machine {
    /// Returns the properties of the current machine.
    pub fn detect() -> Self {
        let wanted = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(wanted).ok();
        Machine {
            hostname: System::host_name().unwrap_or_default(),
            cpu: system.as_ref().and_then(|s| Some(s.cpus().first()?.brand().trim().to_owned())).unwrap_or_default(),
            cores: System::physical_core_count().unwrap_or_default(),
            threads: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: Bytes(system.map(|s| s.total_memory()).unwrap_or_default()),
            system: System::long_os_version().unwrap_or_default(),
            kernel: System::kernel_version().unwrap_or_default(),
            architecture: std::env::consts::ARCH.to_owned(),
            processor_clock: ProcessorClock::read(),
            container: ContainerRecord::detect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_threads_and_a_kernel() {
        let machine = Machine::detect();
        assert!(machine.memory_bytes.0 > 0 && machine.threads > 0);
        assert!(!machine.kernel.is_empty());
    }
}
