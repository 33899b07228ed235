//! Chooses the decoder of images of a case.

use serde_json::Value;

use super::{CaseSettings, Catalogue, DecoderChoice, EngineChoice};
use flagperf_config::{Finding, Vendor};

/// Returns the decoder that the settings name, for the device of the engine.
///
/// # Errors
/// When the vendor has no such decoder, or it is not built.
pub(super) fn choose_decoder(
    vendor: &Vendor,
    settings: &CaseSettings,
    engine: &EngineChoice,
    catalogue: &Catalogue,
) -> Result<Option<DecoderChoice>, Finding> {
    let Some(name) = settings.decoder.clone() else { return Ok(None) };
    vendor.decoder(&name).map_err(Finding::unplaced)?;
    let library = vendor.decoder_library(&name).filter(|library| (catalogue.is_file)(library));
    let library = library.ok_or_else(|| {
        let missing = Finding::unplaced(format!("decoder `{name}` is not built on this machine")).on_machine();
        missing.with_hint(format!("run `flagperf decoder build {}/{name}`", vendor.name))
    })?;
    let device = engine.options.get("device").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(Some(DecoderChoice { name, library, device }))
}
