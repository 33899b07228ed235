//! What the switches of a case change, as a page that needs neither scripts nor the network.

use flagperf_comparison::Ablation;
use flagperf_page::ablation_html;

use super::ablate_text::ablation_text;
use super::compare_page::page_with_text;

/// Returns the page.
pub(super) fn ablation_page(ablation: &Ablation) -> String {
    page_with_text(&format!("Switches of {}", ablation.case), &ablation_html(ablation), |columns| {
        ablation_text(ablation, columns)
    })
}
