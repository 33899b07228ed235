//! Reads the UUID of a CUDA device through the library of its driver.
//!
//! Device numbers are specific to CUDA: they depend on CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES, and a number may
//! refer to a slice of a device (MIG). Knows no engine.

use std::ffi::c_int;
use std::sync::OnceLock;

use libloading::Library;

const LIBRARY: &str = "libcuda.so.1";

type Init = unsafe extern "C" fn(flags: u32) -> c_int;
type DeviceGet = unsafe extern "C" fn(device: *mut c_int, ordinal: c_int) -> c_int;
type DeviceGetUuid = unsafe extern "C" fn(uuid: *mut [u8; 16], device: c_int) -> c_int;

/// The functions of the library that are used here.
struct Cuda {
    device_get: DeviceGet,
    device_get_uuid: DeviceGetUuid,
}

/// Returns the UUID of device number `index` of this process, as text without a prefix; `None` when CUDA is missing or
/// too old to distinguish slices of a device.
pub(super) fn device_uuid(index: u32) -> Option<String> {
    static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();
    let cuda = CUDA.get_or_init(Cuda::open).as_ref()?;
    let (mut device, mut uuid) = (0, [0; 16]);
    // SAFETY: CUDA is initialised; the pointers for the results are valid during the calls.
    let result = unsafe {
        match (cuda.device_get)(&raw mut device, c_int::try_from(index).ok()?) {
            0 => (cuda.device_get_uuid)(&raw mut uuid, device),
            error => error,
        }
    };
    (result == 0).then(|| format_uuid(uuid))
}

impl Cuda {
    fn open() -> Option<Self> {
        // SAFETY: loading the driver's library runs no code that could disturb this process; engines load it, too. The
        // functions have these signatures in every version (cuda.h). The library is never closed.
        let (init, cuda) = unsafe {
            let library = Box::leak(Box::new(Library::new(LIBRARY).ok()?));
            let init = *library.get::<Init>(b"cuInit\0").ok()?;
            let device_get = *library.get::<DeviceGet>(b"cuDeviceGet\0").ok()?;
            // The first version of this function returns the UUID of the whole device for a slice.
            let device_get_uuid = *library.get::<DeviceGetUuid>(b"cuDeviceGetUuid_v2\0").ok()?;
            (init, Cuda { device_get, device_get_uuid })
        };
        // SAFETY: the function accepts any flags; only 0 is defined. It creates no context.
        (unsafe { init(0) } == 0).then_some(cuda)
    }
}

/// Formats sixteen bytes as `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
fn format_uuid(uuid: [u8; 16]) -> String {
    let digits = flagperf_core::hash::hexadecimal(&uuid);
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_the_usual_format() {
        let bytes = [0x5b, 0x1e, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 255];
        assert_eq!(format_uuid(bytes), "5b1e0001-0203-0405-0607-08090a0b0cff");
    }
}
