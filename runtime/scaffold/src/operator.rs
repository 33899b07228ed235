//! A new operator of a vendor, with one source for the processor and for CUDA.

use std::path::Path;

use super::engine::unknown_vendor;
use super::{Checkout, Scaffold, ScaffoldError, name};
use flagperf_config::{OPERATOR_FILE, OPERATORS_FOLDER};

/// Returns a new operator of a vendor.
///
/// # Errors
/// When the name is not allowed or the vendor is unknown.
pub fn new_operator(name: &str, vendor: &str, checkout: &Checkout<'_>) -> Result<Scaffold, ScaffoldError> {
    let what = "an operator";
    name::check(what, name)?;
    if name.contains('-') || vendor.contains('-') {
        let reason = "the name of an operator in a pattern, VENDOR.NAME, has no `-`";
        return Err(ScaffoldError::Reserved { what, name: name.to_owned(), reason });
    }
    if !checkout.catalogue.vendors.contains_key(vendor) {
        return Err(unknown_vendor(vendor, checkout));
    }
    let folder = Path::new("vendors").join(vendor).join(OPERATORS_FOLDER).join(name);
    let fill = |text: &str| text.replace("@VENDOR@", vendor).replace("@NAME@", name);
    let mut scaffold = Scaffold::default();
    scaffold.add(folder.join(OPERATOR_FILE), fill(include_str!("../templates/operator/operator.yaml")));
    scaffold.add(folder.join(format!("{name}.cu")), fill(include_str!("../templates/operator/operator.cu")));
    scaffold.next = vec![
        format!("flagperf operator build {vendor}/{name} --device cpu"),
        format!("flagperf operator test {vendor}/{name}"),
    ];
    Ok(scaffold)
}
