//! The C ABI by which a vendor brings an engine as a shared library, and a helper to write such a plug-in in safe Rust.
//!
//! A plug-in in C includes `include/flagperf_plugin.h`. A plug-in in Rust implements [`Engine`] and [`Session`] and
//! exports them with [`export!`]; a panic becomes an error of the call in which it happened.
//!
//! Knows nothing about vendors or the host, and reads no clock.
//!
//! ```
//! use flagperf_plugin::{
//!     DType, Engine, EngineInfo, Error, HostMemory, HostOnly, Input, Load, Output, Session, ValueInfo,
//! };
//!
//! flagperf_plugin::export!(Echo);
//!
//! /// Returns its input as its output.
//! struct Echo;
//!
//! impl Engine for Echo {
//!     type Session = Echo;
//!     const INFO: EngineInfo = EngineInfo {
//!         name: "echo",
//!         version: "1.0",
//!         about: "returns its input as its output",
//!         framework: false,
//!         compiler: true,
//!         onnx: false,
//!         compiled: true,
//!         differentiates: false,
//!         shares_tensors: false,
//!         precisions: &[DType::F32],
//!         opset_max: 17,
//!         options: Some("[]"),
//!     };
//!
//!     fn load(load: &Load<'_>) -> Result<Echo, Error> {
//!         if load.options == "{}" { Ok(Echo) } else { Err(Error::failed("this engine has no options")) }
//!     }
//! }
//!
//! struct Bytes(Vec<u8>);
//!
//! impl HostMemory for Bytes {
//!     fn bytes(&self) -> &[u8] {
//!         &self.0
//!     }
//! }
//!
//! impl Session for Echo {
//!     type Tensor = HostOnly;
//!
//!     fn inputs(&self) -> Vec<ValueInfo> {
//!         vec![ValueInfo { name: "x".to_owned(), spec: "N,3,f32".to_owned() }]
//!     }
//!
//!     fn outputs(&self) -> Vec<ValueInfo> {
//!         vec![ValueInfo { name: "y".to_owned(), spec: "N,3,f32".to_owned() }]
//!     }
//!
//!     fn submit(&mut self, inputs: &[Input<'_, HostOnly>]) -> Result<Vec<Output<HostOnly>>, Error> {
//!         let outputs = inputs.iter().map(|input| match input {
//!             Input::Host(x) => {
//!                 let memory = Box::new(Bytes(x.bytes.to_vec()));
//!                 Output::Host { shape: x.shape.to_vec(), dtype: x.dtype, memory }
//!             }
//!             Input::Own(x) => match **x {},
//!         });
//!         Ok(outputs.collect())
//!     }
//!
//!     fn copy_to_host(&mut self, tensor: &HostOnly, _: &mut [u8]) -> Result<(), Error> {
//!         match *tensor {}
//!     }
//! }
//! # assert!(!flagperf_plugin().is_null());
//! ```

#![warn(missing_docs)]

pub mod abi;
mod dtype;
mod engine;
mod export;
mod failure;
mod managed;
#[cfg(feature = "operators")]
pub mod operator;
mod shims;

pub use dlpark::DlpackFlags;
pub use dlpark::ffi as dlpack;

pub use dtype::DType;
pub use engine::{
    Artifact, DeviceTensor, Engine, EngineInfo, Error, HostMemory, HostOnly, HostView, Input, LentMemory, Load, Output,
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
            TABLE.for_engine::<$engine>()
        }
    };
}
