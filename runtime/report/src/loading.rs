//! How images were loaded and decoded, as text.

use super::rows::plural;
use flagperf_core::event::DecoderFacts;
use flagperf_result::PhaseRecord;

/// Returns the threads and the batches that a search before the measurement has found.
pub fn searched_loading(phase: &PhaseRecord) -> Option<(&'static str, String)> {
    let search = phase.dataset.as_ref()?.loading.as_ref()?;
    let chosen = search.tried.get(search.chosen)?;
    let tried = plural(search.tried.len() as u64, "trial", "trials");
    let text = format!("{} threads, {} batches ahead: the best of {tried}", chosen.num_workers, chosen.prefetch);
    Some(("loaded by", text))
}

/// Describes a decoder of images.
pub fn decoder_text(decoder: &DecoderFacts) -> String {
    let DecoderFacts { name, description, images, on_processor, compared, .. } = decoder;
    let images = plural(*images, "image", "images");
    let others = if *on_processor == 0 { String::new() } else { format!(", {on_processor} on the processor") };
    let difference = match compared {
        0 => "none compared with flagperf's".to_owned(),
        _ => format!(
            "{compared} of them differ from flagperf's by at most {} levels and {:.3} on average",
            decoder.largest_difference, decoder.mean_difference
        ),
    };
    format!("{name} ({description}): {images}{others}; {difference}")
}
