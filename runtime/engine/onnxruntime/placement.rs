//! Which provider got how many nodes, as ONNX Runtime tells it.

use std::ffi::CStr;
use std::ptr;

use indexmap::IndexMap;
use ort::AsPointer;
use ort::session::Session;
use ort::sys::{OrtEpAssignedNode, OrtEpAssignedSubgraph};

/// The entry of a session's configuration that has nodes counted.
pub(super) const COUNTED: (&str, &str) = ("session.record_ep_graph_assignment_info", "1");

/// Nodes of the graph by the provider that runs them, under ONNX Runtime's names.
///
/// # Errors
/// When the library does not tell.
pub(super) fn nodes_by_provider(session: &Session) -> ort::Result<IndexMap<String, u64>> {
    let api = ort::api();
    let mut parts: *const *const OrtEpAssignedSubgraph = ptr::null();
    let mut count = 0;
    // SAFETY: the session lives through the call, and both results are places for what the library gives.
    checked(unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), &mut parts, &mut count) })?;
    let mut nodes = IndexMap::new();
    for index in 0..count {
        // SAFETY: the library gave `count` parts, and they live as long as the session.
        let part = unsafe { *parts.add(index) };
        let mut name = ptr::null();
        // SAFETY: as above; the name is the session's own and ends with a zero.
        checked(unsafe { (api.EpAssignedSubgraph_GetEpName)(part, &mut name) })?;
        let mut assigned: *const *const OrtEpAssignedNode = ptr::null();
        let mut many = 0;
        // SAFETY: as above.
        checked(unsafe { (api.EpAssignedSubgraph_GetNodes)(part, &mut assigned, &mut many) })?;
        // SAFETY: a name that the call above gave.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        *nodes.entry(name).or_default() += many as u64;
    }
    Ok(nodes)
}

fn checked(status: ort::sys::OrtStatusPtr) -> ort::Result<()> {
    // SAFETY: every status here is what the library has just given.
    unsafe { ort::Error::result_from_status(status) }
}
