//! The C ABI by which a vendor brings an engine as a shared library, and a helper to write one in safe Rust.
//!
//! A plug-in in C includes `include/flagperf_plugin.h`. One in Rust implements [`Engine`] and [`Session`] and gives them
//! to the host with [`export!`]; a panic becomes an error of the call it happened in.
//!
//! Knows no vendor, no host and no clock.

pub mod abi;
mod dtype;
mod engine;
mod export;
mod failure;
mod managed;
mod shims;

pub use dlpark::DlpackFlags;
pub use dlpark::ffi as dlpack;

pub use dtype::DType;
pub use engine::{
    About, Artifact, DeviceTensor, Engine, Error, HostMemory, HostOnly, HostView, Input, LentMemory, Load, Output,
    Session, ValueInfo,
};
#[doc(hidden)]
pub use export::Table;
pub use managed::{is_host, row_major};

/// Exports an [`Engine`] as the plug-in of this shared library (`crate-type = ["cdylib"]`).
#[macro_export]
macro_rules! export {
    ($engine:ty) => {
        /// The table of this plug-in.
        #[unsafe(no_mangle)]
        pub extern "C" fn flagperf_plugin() -> *const $crate::abi::FlagperfPlugin {
            static TABLE: $crate::Table = $crate::Table::new();
            TABLE.of::<$engine>()
        }
    };
}
