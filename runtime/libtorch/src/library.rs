//! The version of libtorch, and the recognition of its out-of-memory messages.

use flagperf_plugin::Error;

/// The version of libtorch that tch is written for.
pub const VERSION: &str = "2.11.0";

unsafe extern "C" {
    /// Returns libtorch's version: major, minor and patch in the three highest bytes (torch/headeronly/version.h).
    fn aoti_torch_abi_version() -> u64;
}

/// Checks that the loaded libtorch has the version that the plug-in was built for.
///
/// # Errors
/// When it has another version.
pub fn check() -> Result<(), Error> {
    // SAFETY: the function has no arguments and returns a constant.
    let bytes = unsafe { aoti_torch_abi_version() }.to_be_bytes();
    let found = format!("{}.{}.{}", bytes[0], bytes[1], bytes[2]);
    if found == VERSION {
        return Ok(());
    }
    Err(Error::Unavailable {
        reason: format!("libtorch has version `{found}`, but this plug-in needs `{VERSION}`"),
        remedy: "unset LD_LIBRARY_PATH if it contains another libtorch, or run `flagperf backend install libtorch`"
            .to_owned(),
    })
}

/// Returns the size of the failed allocation that an error message reports; `None` for any other message.
pub fn requested_bytes(message: &str) -> Option<u64> {
    if !message.contains("allocate memory") && !message.contains("out of memory") {
        return None;
    }
    let requested = message.split("ried to allocate ").nth(1)?;
    let mut words = requested.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let unit = match words.next()?.trim_end_matches('.') {
        "KiB" => 1u64 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => 1,
    };
    Some((number * unit as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_allocations_are_recognized_on_the_cpu_and_on_a_device() {
        let message = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried \
                       to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)";
        assert_eq!(requested_bytes(message), Some(4_000_000_000_000));
        let message = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.19 GiB";
        assert_eq!(requested_bytes(message), Some(5 << 29));
        assert_eq!(requested_bytes("The size of tensor a (3) must match the size of tensor b (4)"), None);
    }

    #[test]
    fn the_loaded_library_has_the_expected_version() {
        check().unwrap();
    }
}
