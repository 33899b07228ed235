//! The processor as a device: the operating system knows it.

use sysinfo::{CpuRefreshKind, RefreshKind, System};

use super::{DeviceFacts, Monitor};

/// The monitor of processors. They have no driver, and the memory that they use is counted by process.
#[derive(Clone, Copy, Debug)]
pub struct Processor;

impl Monitor for Processor {
    fn name(&self) -> &'static str {
        "processor"
    }

    fn about(&self) -> &'static str {
        "processors, as the operating system knows them"
    }

    fn check(&self) -> Result<String, String> {
        let kernel = System::kernel_version().map_err(|error| error.to_string())?;
        Ok(format!("kernel {kernel}"))
    }

    fn device(&self, name: &str) -> Option<DeviceFacts> {
        if name.split(' ').next() != Some("cpu") {
            return None;
        }
        let asked = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
        let system = System::new_with_specifics(asked).ok()?;
        let name = system.cpus().first()?.brand().trim().to_owned();
        Some(DeviceFacts { name, driver: None, id: None })
    }
}
