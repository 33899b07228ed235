//! What libtorch says of itself: its version, and how it words a lack of memory.

use flagperf_plugin::Error;

/// The version that tch is written for.
pub const VERSION: &str = "2.11.0";

unsafe extern "C" {
    /// libtorch's version: major, minor and patch in the three highest bytes (torch/headeronly/version.h).
    fn aoti_torch_abi_version() -> u64;
}

/// Whether the library that was opened is the one that this was built for.
///
/// # Errors
/// When it is another one.
pub fn check() -> Result<(), Error> {
    // SAFETY: the function takes nothing and gives a constant.
    let bytes = unsafe { aoti_torch_abi_version() }.to_be_bytes();
    let found = format!("{}.{}.{}", bytes[0], bytes[1], bytes[2]);
    if found == VERSION {
        return Ok(());
    }
    Err(Error::Unavailable {
        reason: format!("libtorch is of version `{found}`, this plug-in is for `{VERSION}`"),
        remedy: "unset LD_LIBRARY_PATH if it names another libtorch, or `flagperf backend install libtorch`".to_owned(),
    })
}

/// The bytes that could not be had, when that is what an error is about.
pub fn memory_asked_for(said: &str) -> Option<u64> {
    if !said.contains("allocate memory") && !said.contains("out of memory") {
        return None;
    }
    let asked = said.split("ried to allocate ").nth(1)?;
    let mut words = asked.split_whitespace();
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
    fn a_lack_of_memory_is_understood_on_the_processor_and_on_a_device() {
        let said = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried \
                    to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)";
        assert_eq!(memory_asked_for(said), Some(4_000_000_000_000));
        let said = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.19 GiB";
        assert_eq!(memory_asked_for(said), Some(5 << 29));
        assert_eq!(memory_asked_for("The size of tensor a (3) must match the size of tensor b (4)"), None);
    }

    #[test]
    fn the_library_is_of_the_version_that_this_is_built_for() {
        check().unwrap();
    }
}
