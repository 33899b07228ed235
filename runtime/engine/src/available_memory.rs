//! The memory of the machine that is available.

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

/// Returns the available memory in bytes, within the limit of the control group. It is checked before large allocations,
/// because the system kills processes instead of refusing memory.
pub fn available_memory() -> u64 {
    let memory = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    // Where the system does not report its memory, the allocation itself decides.
    let Ok(system) = System::new_with_specifics(memory) else { return u64::MAX };
    let limit = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    system.available_memory().min(limit)
}
