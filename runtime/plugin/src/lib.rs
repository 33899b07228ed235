//! The C ABI by which a vendor brings an engine as a shared library, and a helper to write one in safe Rust.
//!
//! A plug-in in C includes `include/flagperf_plugin.h`. One in Rust implements [`Engine`] and [`Session`] and gives them
//! to the host with [`export!`]; a panic becomes an error of the call it happened in.
//!
//! Knows no vendor, no host and no clock.
//!
//! ```
//! use flagperf_plugin::{About, DType, Engine, Error, HostMemory, HostOnly, Input, Load, Output, Session, ValueInfo};
//!
//! flagperf_plugin::export!(Echo);
//!
//! /// Gives its input back.
//! struct Echo;
//!
//! impl Engine for Echo {
//!     type Session = Echo;
//!     const ABOUT: About = About {
//!         name: "echo",
//!         version: "1.0",
//!         about: "gives its input back",
//!         framework: false,
//!         compiler: true,
//!         onnx: false,
//!         compiled: true,
//!         precisions: &[DType::F32],
//!         opset_max: 17,
//!     };
//!
//!     fn load(load: &Load<'_>) -> Result<Echo, Error> {
//!         if load.options == "{}" { Ok(Echo) } else { Err(Error::failed("it takes no options")) }
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
//!         let given = inputs.iter().map(|input| match input {
//!             Input::Host(x) => {
//!                 let memory = Box::new(Bytes(x.bytes.to_vec()));
//!                 Output::Host { shape: x.shape.to_vec(), dtype: x.dtype, memory }
//!             }
//!             Input::Own(x) => match **x {},
//!         });
//!         Ok(given.collect())
//!     }
//!
//!     fn copy_to_host(&mut self, tensor: &HostOnly, _: &mut [u8]) -> Result<(), Error> {
//!         match *tensor {}
//!     }
//! }
//! # assert!(!flagperf_plugin().is_null());
//! ```

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
