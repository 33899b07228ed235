//! The table of a plug-in in Rust.

use std::ffi::CString;
use std::ptr::null;
use std::sync::OnceLock;

use crate::abi::{
    FLAGPERF_ABI_VERSION, FLAGPERF_COMPILED, FLAGPERF_COMPILER, FLAGPERF_FRAMEWORK, FLAGPERF_ONNX, FlagperfPlugin,
};
use crate::failure::{c_string, infallible, last_error};
use crate::{Engine, shims};

/// The table and the texts that it points to; made at the first call.
pub struct Table(OnceLock<(FlagperfPlugin, [CString; 3])>);

impl Table {
    /// A table that is not made yet.
    #[expect(clippy::new_without_default, reason = "made by `export!` only, in a static")]
    pub const fn new() -> Self {
        Table(OnceLock::new())
    }

    /// The table of `E`; null when it cannot be made.
    pub fn of<E: Engine>(&'static self) -> *const FlagperfPlugin {
        infallible(null(), || &raw const self.0.get_or_init(table::<E>).0)
    }
}

fn table<E: Engine>() -> (FlagperfPlugin, [CString; 3]) {
    let about = E::ABOUT;
    let texts = [about.name, about.version, about.about].map(c_string);
    let bit = |is: bool, bit: u32| if is { bit } else { 0 };
    let table = FlagperfPlugin {
        abi_version: FLAGPERF_ABI_VERSION,
        struct_size: size_of::<FlagperfPlugin>() as u32,
        name: texts[0].as_ptr(),
        version: texts[1].as_ptr(),
        about: texts[2].as_ptr(),
        roles: bit(about.framework, FLAGPERF_FRAMEWORK) | bit(about.compiler, FLAGPERF_COMPILER),
        artifacts: bit(about.onnx, FLAGPERF_ONNX) | bit(about.compiled, FLAGPERF_COMPILED),
        precisions: about.precisions.iter().fold(0, |bits, precision| bits | precision.bit()),
        opset_max: about.opset_max,
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
    };
    (table, texts)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::null_mut;

    use super::*;
    use crate::abi::{FLAGPERF_BAD_OPTION, FLAGPERF_FAILED, FLAGPERF_OK, FLAGPERF_UNAVAILABLE, FlagperfLoad};
    use crate::{About, DType, Error, HostOnly, Input, Load, Output, Session, ValueInfo};

    /// An engine whose session panics whatever it is asked.
    struct Fragile;

    impl Engine for Fragile {
        type Session = Fragile;

        const ABOUT: About = About {
            name: "fragile",
            version: "1",
            about: "breaks",
            framework: false,
            compiler: true,
            onnx: false,
            compiled: true,
            precisions: &[DType::F32, DType::BF16],
            opset_max: 17,
        };

        fn check() -> Result<(), Error> {
            Err(Error::Unavailable { reason: "no `chip`".to_owned(), remedy: "buy one".to_owned() })
        }

        fn load(load: &Load<'_>) -> Result<Fragile, Error> {
            assert_eq!(load.options, "{}", "strange options");
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
        // SAFETY: the table is made, and static.
        unsafe { &*TABLE.of::<Fragile>() }
    }

    fn message() -> String {
        // SAFETY: a call failed on this thread just now.
        let message = unsafe { CStr::from_ptr((*plugin().last_error.unwrap()()).message) };
        message.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_table_says_what_the_engine_is() {
        let plugin = plugin();
        assert_eq!((plugin.roles, plugin.artifacts), (FLAGPERF_COMPILER, FLAGPERF_COMPILED));
        assert_eq!(DType::from_bits(plugin.precisions), Some(vec![DType::F32, DType::BF16]));
        // SAFETY: a text of the table.
        assert_eq!(unsafe { CStr::from_ptr(plugin.name) }, c"fragile");
        // SAFETY: the function takes nothing.
        assert_eq!(unsafe { plugin.check.unwrap()() }, FLAGPERF_UNAVAILABLE);
        assert_eq!(message(), "no `chip`");
    }

    #[test]
    fn panics_and_wrong_counts_stop_at_the_border() {
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
        // SAFETY: the functions are called as the interface describes it.
        unsafe {
            let loads = plugin.load.unwrap();
            assert_eq!(loads(&raw const load, &raw mut session), FLAGPERF_FAILED);
            assert!(message().contains("the plug-in panicked: ") && message().contains("strange options"));
            load.options = c"{}".as_ptr();
            assert_eq!(loads(&raw const load, &raw mut session), FLAGPERF_OK);
            assert_eq!(plugin.sync.unwrap()(session), FLAGPERF_FAILED);
            assert_eq!(message(), "the plug-in panicked: out of sync");
            assert_eq!(plugin.threads.unwrap()(session), 0);
            let submit = plugin.submit.unwrap();
            assert_eq!(submit(session, [].as_ptr(), 0, &raw mut output, 1), FLAGPERF_FAILED);
            assert_eq!(message(), "the session gave 0 outputs, it has 1");
            let mut answer = null();
            let asked = plugin.ask.unwrap()(session, c"layers".as_ptr(), c"null".as_ptr(), &raw mut answer);
            assert_eq!((asked, answer.is_null()), (FLAGPERF_BAD_OPTION, true));
            assert_eq!(message(), "unknown (there is none)");
            assert_eq!(plugin.tune.unwrap()(session, c"profile".as_ptr(), c"1".as_ptr()), FLAGPERF_BAD_OPTION);
            plugin.unload.unwrap()(session);
        }
    }
}
