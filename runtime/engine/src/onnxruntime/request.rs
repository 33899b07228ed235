//! The execution provider that the options request: a row of the table, or any other by ONNX Runtime's name for it.
//!
//! A vendor brings a provider in its own build of ONNX Runtime (`library_path`), or in a library that ONNX Runtime
//! registers (`provider_library`).

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr;

use indexmap::{IndexMap, IndexSet};
use ort::AsPointer;
use ort::device::Device;
use ort::environment::Environment;
use ort::session::builder::SessionBuilder;

use super::library;
use super::options::OrtOptions;
use super::placement::check_status;
use super::provider::{PROVIDERS, Provider};
use super::to_engine_error;
use crate::EngineError;
use flagperf_core::suggestion::list_known;
use flagperf_core::tensor::DType;

/// The end of every name that ONNX Runtime gives to a provider of its own.
const SUFFIX: &str = "ExecutionProvider";
/// The longest accepted name: `ort` copies it to a buffer of 128 bytes without checking its length.
const NAME_MAX: usize = 100;

/// The execution provider that the options request.
#[derive(Clone, Copy)]
pub(super) enum RequestedProvider<'a> {
    /// A row of the table.
    Known(&'static Provider),
    /// Any other provider, by ONNX Runtime's name for it.
    Other(&'a str),
}

impl<'a> RequestedProvider<'a> {
    /// Finds the provider of this name: a short or full name of the table; any other full name; with `has_library`, any
    /// name, because a library that a vendor brings chooses the name of its provider.
    ///
    /// # Errors
    /// Why there cannot be a provider of this name, with the known ones.
    pub(super) fn find(name: &'a str, has_library: bool) -> Result<Self, String> {
        if let Some(row) = PROVIDERS.iter().find(|row| row.name == name || row.canonical == name) {
            return Ok(RequestedProvider::Known(row));
        }
        if name.len() > NAME_MAX || name.contains('\0') {
            return Err(format!("the name is longer than {NAME_MAX} bytes or contains a zero byte"));
        }
        if name.ends_with(SUFFIX) || has_library {
            return Ok(RequestedProvider::Other(name));
        }
        Err(format!(
            "unknown provider `{name}` (known: {}); any other provider is requested by ONNX Runtime's full name for it, \
             which ends with `{SUFFIX}`",
            list_known(name, PROVIDERS.iter().map(|row| row.name))
        ))
    }

    /// Returns whether the provider accepts options.
    pub(super) fn accepts_options(&self) -> bool {
        matches!(self, RequestedProvider::Other(_) | RequestedProvider::Known(Provider { configurable: true, .. }))
    }

    /// The name that the record shows as the device.
    pub(super) fn name(&self) -> &'a str {
        match self {
            RequestedProvider::Known(provider) => provider.name,
            RequestedProvider::Other(name) => name,
        }
    }

    /// ONNX Runtime's own name.
    pub(super) fn canonical(&self) -> &'a str {
        match self {
            RequestedProvider::Known(provider) => provider.canonical,
            RequestedProvider::Other(name) => name,
        }
    }

    /// Returns `None` when the provider computes in `dtype` as far as it is known, and otherwise what it supports
    /// instead.
    pub(super) fn precision_alternative(&self, dtype: DType) -> Option<String> {
        match self {
            RequestedProvider::Known(provider) => provider.precision_alternative(dtype),
            RequestedProvider::Other(_) => None,
        }
    }

    /// Returns the default options for models in `dtype`.
    pub(super) fn defaults(&self, dtype: DType) -> IndexMap<String, String> {
        match self {
            RequestedProvider::Known(provider) => provider.defaults(dtype),
            RequestedProvider::Other(_) => IndexMap::new(),
        }
    }

    /// Registers the provider with a session. Returns the name of the device that ONNX Runtime reports for it, if it
    /// reports devices.
    ///
    /// # Errors
    /// When the library has no such provider, with those that it has, or the provider refuses its options.
    pub(super) fn register(
        &self,
        builder: SessionBuilder,
        environment: &Environment,
        settings: &OrtOptions<'_>,
    ) -> Result<(SessionBuilder, Option<String>), EngineError> {
        let has_device = self.check_available(environment, settings.provider_library.as_deref())?;
        let by_device = settings.by_device() || matches!(self, RequestedProvider::Other(_));
        match self {
            _ if has_device && by_device => {
                let (builder, device) = self.append_device(builder, environment, settings)?;
                Ok((builder, Some(device)))
            }
            _ if settings.provider_device.is_some() => Err(EngineError::Failed(format!(
                "option `provider_device`: ONNX Runtime reports no devices for provider `{}`; `provider_options` select one",
                self.name()
            ))),
            RequestedProvider::Known(provider) => {
                let dispatch = provider.dispatch(&settings.provider_options)?;
                let builder = builder.with_execution_providers([dispatch]).map_err(|error| to_engine_error(&error))?;
                Ok((builder, None))
            }
            RequestedProvider::Other(name) => {
                let builder = append_by_name(builder, name, &settings.provider_options);
                builder.map(|builder| (builder, None)).map_err(|error| to_engine_error(&error))
            }
        }
    }

    /// Checks that the opened library has the provider, after registering the library that brings it. Returns whether ONNX
    /// Runtime reports devices for it.
    ///
    /// # Errors
    /// When the library has no such provider, with those that it has.
    pub(super) fn check_available(&self, environment: &Environment, own: Option<&Path>) -> Result<bool, EngineError> {
        if let Some(path) = own {
            library::register_provider(environment, path)?;
        }
        let is_built_in = built_in_providers()?.iter().any(|name| name == self.canonical());
        let has_device = devices_of(environment, self.canonical()).next().is_some();
        // A library that was registered may bring another provider.
        let is_available = has_device || is_built_in && own.is_none();
        if is_available { Ok(has_device) } else { Err(self.missing_error(environment)) }
    }

    /// Registers the provider for one of its devices and returns the device's name.
    fn append_device(
        &self,
        builder: SessionBuilder,
        environment: &Environment,
        settings: &OrtOptions<'_>,
    ) -> Result<(SessionBuilder, String), EngineError> {
        let canonical = self.canonical();
        let index = settings.provider_device.unwrap_or(0);
        let Some(device) = devices_of(environment, canonical).nth(index) else {
            let names: Vec<String> = devices_of(environment, canonical).map(|device| device_name(&device)).collect();
            let reason = format!("option `provider_device`: no device {index} (known from 0: {})", names.join(", "));
            return Err(EngineError::Failed(reason));
        };
        let name = format!("{}:{index} {}", self.name(), device_name(&device));
        let prefixed = |(key, value): (&String, &String)| (format!("{canonical}.{key}"), value.clone());
        let options: Vec<(String, String)> = settings.provider_options.iter().map(prefixed).collect();
        let builder = builder.with_devices([device], Some(&options)).map_err(|error| to_engine_error(&error))?;
        Ok((builder, name))
    }

    fn missing_error(&self, environment: &Environment) -> EngineError {
        let names: IndexSet<String> = built_in_providers()
            .unwrap_or_default()
            .into_iter()
            .chain(environment.devices().filter_map(|device| device.ep().ok().map(str::to_owned)))
            .map(|name| PROVIDERS.iter().find(|row| row.canonical == name).map_or(name, |row| row.name.to_owned()))
            .collect();
        let name = self.name();
        let available = list_known(name, names.iter().map(String::as_str));
        EngineError::Failed(format!("this build of ONNX Runtime has no provider `{name}` (available: {available})"))
    }
}

/// Returns the devices of a provider.
fn devices_of<'e>(environment: &'e Environment, canonical: &str) -> impl Iterator<Item = Device<'e>> {
    environment.devices().filter(move |device| device.ep().is_ok_and(|name| name == canonical))
}

/// Returns the manufacturer and the kind of a device: `GenuineIntel CPU`.
fn device_name(device: &Device<'_>) -> String {
    let hardware = device.hardware_device();
    format!("{} {:?}", hardware.vendor().unwrap_or("unknown"), hardware.ty())
}

/// Returns the names of the providers that the opened library was built with.
///
/// # Errors
/// When the library does not report them.
fn built_in_providers() -> Result<Vec<String>, EngineError> {
    let api = ort::api();
    let (mut names, mut count) = (ptr::null_mut(), 0);
    // SAFETY: both out-pointers are valid.
    check_status(unsafe { (api.GetAvailableProviders)(&mut names, &mut count) })
        .map_err(|error| to_engine_error(&error))?;
    let copied = (0..usize::try_from(count).unwrap_or(0)).map(|index| {
        // SAFETY: the library returned `count` NUL-terminated names, which live until they are released below.
        unsafe { CStr::from_ptr(*names.add(index)) }.to_string_lossy().into_owned()
    });
    let copied = copied.collect();
    // SAFETY: the names were returned by `GetAvailableProviders` and are released once.
    check_status(unsafe { (api.ReleaseAvailableProviders)(names, count) }).map_err(|error| to_engine_error(&error))?;
    Ok(copied)
}

/// Registers a provider that is built into the library, by its name.
fn append_by_name(
    mut builder: SessionBuilder,
    name: &str,
    options: &IndexMap<String, String>,
) -> ort::Result<SessionBuilder> {
    let text = |text: &str| CString::new(text).map_err(|_| ort::Error::new(format!("`{text:?}` contains a zero byte")));
    let name = text(name)?;
    let keys = options.keys().map(|key| text(key)).collect::<ort::Result<Vec<_>>>()?;
    let values = options.values().map(|value| text(value)).collect::<ort::Result<Vec<_>>>()?;
    let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<*const c_char>>();
    let (key_pointers, value_pointers) = (pointers(&keys), pointers(&values));
    // SAFETY: `name`, `keys` and `values` own the NUL-terminated texts and outlive the call; both arrays have `len`
    // entries; the builder owns its session options.
    let status = unsafe {
        (ort::api().SessionOptionsAppendExecutionProvider)(
            builder.ptr_mut(),
            name.as_ptr(),
            key_pointers.as_ptr(),
            value_pointers.as_ptr(),
            keys.len(),
        )
    };
    check_status(status)?;
    Ok(builder)
}
