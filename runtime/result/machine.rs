//! What a machine is: processor, memory, kernel.

use serde::{Deserialize, Serialize};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::units::Bytes;

/// A machine. Unknown text is empty, unknown numbers are zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its own name.
    pub hostname: String,
    /// The processor's model.
    pub cpu: String,
    /// Physical cores.
    pub cores: usize,
    /// Hardware threads that this process may use.
    pub threads: usize,
    /// Memory.
    pub memory_bytes: Bytes,
    /// The operating system and its version.
    pub system: String,
    /// The kernel's version.
    pub kernel: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
}

impl Machine {
    /// The machine that this runs on.
    pub fn this() -> Self {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_threads_and_a_kernel() {
        let machine = Machine::this();
        assert!(machine.memory_bytes.0 > 0 && machine.threads > 0);
        assert!(!machine.kernel.is_empty());
    }
}
