//! Builds the table of a plug-in in Rust.

use std::ffi::CString;
use std::ptr::null;
use std::sync::OnceLock;

use crate::abi::{
    FLAGPERF_ABI_VERSION, FLAGPERF_COMPILED, FLAGPERF_COMPILER, FLAGPERF_FRAMEWORK, FLAGPERF_GRADIENT, FLAGPERF_ONNX,
    FLAGPERF_SHARED_TENSORS, FlagperfPlugin,
};
use crate::failure::{c_string, catch_panic, last_error};
use crate::{Engine, shims};

/// The table and the texts that it points to, built at the first call.
pub struct Table(OnceLock<(FlagperfPlugin, [CString; 4])>);

impl Table {
    /// Creates a table that is not built yet.
    #[expect(clippy::new_without_default, reason = "only `export!` creates it, in a static")]
    pub const fn new() -> Self {
        Table(OnceLock::new())
    }

    /// Returns the table of `E`; null if building it panics.
    pub fn for_engine<E: Engine>(&'static self) -> *const FlagperfPlugin {
        catch_panic(null(), || &raw const self.0.get_or_init(build_table::<E>).0)
    }
}

fn build_table<E: Engine>() -> (FlagperfPlugin, [CString; 4]) {
    let info = E::INFO;
    let texts = [info.name, info.version, info.about, info.options.unwrap_or_default()].map(c_string);
    let mask_if = |set: bool, mask: u32| if set { mask } else { 0 };
    let table = FlagperfPlugin {
        abi_version: FLAGPERF_ABI_VERSION,
        struct_size: size_of::<FlagperfPlugin>() as u32,
        name: texts[0].as_ptr(),
        version: texts[1].as_ptr(),
        about: texts[2].as_ptr(),
        roles: mask_if(info.framework, FLAGPERF_FRAMEWORK) | mask_if(info.compiler, FLAGPERF_COMPILER),
        artifacts: mask_if(info.onnx, FLAGPERF_ONNX)
            | mask_if(info.compiled, FLAGPERF_COMPILED)
            | mask_if(info.differentiates, FLAGPERF_GRADIENT)
            | mask_if(info.shares_tensors, FLAGPERF_SHARED_TENSORS),
        precisions: info.precisions.iter().fold(0, |bits, precision| bits | precision.bit()),
        opset_max: info.opset_max,
        last_error: Some(last_error),
        check: Some(shims::check::<E>),
        load: Some(shims::load::<E>),
        inputs: Some(shims::inputs::<E::Session>),
        outputs: Some(shims::outputs::<E::Session>),
        lend: Some(shims::lend::<E::Session>),
        give_back: Some(shims::give_back),
        submit: Some(shims::submit::<E::Session>),
        sync: Some(shims::sync::<E::Session>),
        copy_to_host: Some(shims::copy_to_host::<E::Session>),
        device_memory: Some(shims::device_memory::<E::Session>),
        device: Some(shims::device::<E::Session>),
        threads: Some(shims::threads::<E::Session>),
        unload: Some(shims::unload::<E::Session>),
        ask: Some(shims::ask::<E::Session>),
        tune: Some(shims::tune::<E::Session>),
        options: info.options.map_or(null(), |_| texts[3].as_ptr()),
    };
    (table, texts)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::null_mut;

    use super::*;
    use crate::abi::{FLAGPERF_BAD_OPTION, FLAGPERF_FAILED, FLAGPERF_OK, FLAGPERF_UNAVAILABLE, FlagperfLoad};
    use crate::{DType, EngineInfo, Error, HostOnly, Input, Load, Output, Session, ValueInfo};

    /// An engine whose session panics in several calls.
    struct Fragile;

    impl Engine for Fragile {
        type Session = Fragile;

        const INFO: EngineInfo = EngineInfo {
            name: "fragile",
            version: "1",
            about: "breaks",
            framework: false,
            compiler: true,
            onnx: false,
            compiled: true,
            differentiates: false,
            shares_tensors: false,
            precisions: &[DType::F32, DType::BF16],
            opset_max: 17,
            options: None,
        };

        fn check() -> Result<(), Error> {
            Err(Error::Unavailable { reason: "no `chip`".to_owned(), remedy: "buy one".to_owned() })
        }

        fn load(load: &Load<'_>) -> Result<Fragile, Error> {
            assert_eq!(load.options, "{}", "unexpected options");
            Ok(Fragile)
        }
    }

    impl Session for Fragile {
        type Tensor = HostOnly;

        fn inputs(&self) -> Vec<ValueInfo> {
            Vec::new()
        }

        fn outputs(&self) -> Vec<ValueInfo> {
            vec![ValueInfo { name: "y".to_owned(), spec: "f32".to_owned() }]
        }

        fn submit(&mut self, _: &[Input<'_, HostOnly>]) -> Result<Vec<Output<HostOnly>>, Error> {
            Ok(Vec::new())
        }

        fn sync(&mut self) -> Result<(), Error> {
            panic!("out of sync")
        }

        fn copy_to_host(&mut self, tensor: &HostOnly, _: &mut [u8]) -> Result<(), Error> {
            match *tensor {}
        }

        fn threads(&self) -> usize {
            panic!("no threads")
        }
    }

    fn plugin() -> &'static FlagperfPlugin {
        static TABLE: Table = Table::new();
        // SAFETY: the table was built and is static.
        unsafe { &*TABLE.for_engine::<Fragile>() }
    }

    fn message() -> String {
        // SAFETY: a call on this thread has just failed.
        let message = unsafe { CStr::from_ptr((*plugin().last_error.unwrap()()).message) };
        message.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_table_describes_the_engine() {
        let plugin = plugin();
        assert_eq!((plugin.roles, plugin.artifacts), (FLAGPERF_COMPILER, FLAGPERF_COMPILED));
        assert_eq!(DType::from_bits(plugin.precisions), Some(vec![DType::F32, DType::BF16]));
        // SAFETY: a text of the table.
        assert_eq!(unsafe { CStr::from_ptr(plugin.name) }, c"fragile");
        // SAFETY: the function has no arguments.
        assert_eq!(unsafe { plugin.check.unwrap()() }, FLAGPERF_UNAVAILABLE);
        assert_eq!(message(), "no `chip`");
    }

    #[test]
    fn panics_and_wrong_counts_become_errors_of_the_call() {
        let (plugin, mut session, mut output) = (plugin(), null_mut(), null_mut());
        let mut load = FlagperfLoad {
            struct_size: size_of::<FlagperfLoad>() as u32,
            artifact: FLAGPERF_COMPILED,
            path: c"x".as_ptr(),
            options: c"[]".as_ptr(),
            threads: 1,
            batch_size: 1,
            precision: DType::F32.bit(),
            log_folder: null(),
        };
        // SAFETY: the functions are called as the interface requires.
        unsafe {
            let load_model = plugin.load.unwrap();
            assert_eq!(load_model(&raw const load, &raw mut session), FLAGPERF_FAILED);
            assert!(message().contains("the plug-in panicked: ") && message().contains("unexpected options"));
            load.options = c"{}".as_ptr();
            assert_eq!(load_model(&raw const load, &raw mut session), FLAGPERF_OK);
            assert_eq!(plugin.sync.unwrap()(session), FLAGPERF_FAILED);
            assert_eq!(message(), "the plug-in panicked: out of sync");
            assert_eq!(plugin.threads.unwrap()(session), 0);
            let submit = plugin.submit.unwrap();
            assert_eq!(submit(session, [].as_ptr(), 0, &raw mut output, 1), FLAGPERF_FAILED);
            assert_eq!(message(), "the session returned 0 outputs but declares 1");
            let mut answer = null();
            let status = plugin.ask.unwrap()(session, c"layers".as_ptr(), c"null".as_ptr(), &raw mut answer);
            assert_eq!((status, answer.is_null()), (FLAGPERF_BAD_OPTION, true));
            assert_eq!(message(), "unknown (known: none)");
            assert_eq!(plugin.tune.unwrap()(session, c"profile".as_ptr(), c"1".as_ptr()), FLAGPERF_BAD_OPTION);
            plugin.unload.unwrap()(session);
        }
    }
}
