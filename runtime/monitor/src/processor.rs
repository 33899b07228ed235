//! The processor as a device, read from the operating system.

use sysinfo::{CpuRefreshKind, RefreshKind, System};

use super::{DeviceFacts, Monitor};

/// The monitor of processors. A processor has no driver, and its memory in use is counted per process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorMonitor;

impl Monitor for ProcessorMonitor {
    fn name(&self) -> &'static str {
        "processor"
    }

    fn about(&self) -> &'static str {
        "processors, as reported by the operating system"
    }

    fn check(&self) -> Result<String, String> {
        let kernel = System::kernel_version().map_err(|error| error.to_string())?;
        Ok(format!("kernel {kernel}"))
    }

    fn reads_devices(&self) -> bool {
        false
    }

    fn device(&self, name: &str) -> Option<DeviceFacts> {
        if name.split(' ').next() != Some("cpu") {
            return None;
        }
        let refresh = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
        let system = System::new_with_specifics(refresh).ok()?;
        let name = system.cpus().first()?.brand().trim().to_owned();
        Some(DeviceFacts { name, driver: None, id: None })
    }
}
