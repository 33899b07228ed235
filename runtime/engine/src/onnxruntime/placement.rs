//! The number of nodes that each provider runs, as ONNX Runtime reports it.

use std::ffi::CStr;
use std::ptr;

use indexmap::IndexMap;
use ort::AsPointer;
use ort::session::Session;
use ort::sys::{OrtEpAssignedNode, OrtEpAssignedSubgraph};

/// The session configuration entry that makes ONNX Runtime record which provider runs each node.
pub(super) const RECORD_ASSIGNMENT: (&str, &str) = ("session.record_ep_graph_assignment_info", "1");

/// Returns the number of nodes of the graph that each provider runs, under ONNX Runtime's names.
///
/// # Errors
/// When the library does not report them.
pub(super) fn nodes_by_provider(session: &Session) -> ort::Result<IndexMap<String, u64>> {
    let api = ort::api();
    let mut parts: *const *const OrtEpAssignedSubgraph = ptr::null();
    let mut count = 0;
    // SAFETY: the session outlives the call, and both out-pointers are valid.
    check_status(unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), &mut parts, &mut count) })?;
    let mut nodes = IndexMap::new();
    for index in 0..count {
        // SAFETY: the library returned `count` parts, which live as long as the session.
        let part = unsafe { *parts.add(index) };
        let mut name = ptr::null();
        // SAFETY: as above; the session owns the NUL-terminated name.
        check_status(unsafe { (api.EpAssignedSubgraph_GetEpName)(part, &mut name) })?;
        let mut assigned: *const *const OrtEpAssignedNode = ptr::null();
        let mut node_count = 0;
        // SAFETY: as above.
        check_status(unsafe { (api.EpAssignedSubgraph_GetNodes)(part, &mut assigned, &mut node_count) })?;
        // SAFETY: the call above set the name.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        *nodes.entry(name).or_default() += node_count as u64;
    }
    Ok(nodes)
}

/// Converts a status that the library has just returned.
pub(super) fn check_status(status: ort::sys::OrtStatusPtr) -> ort::Result<()> {
    // SAFETY: every status here was just returned by the library.
    unsafe { ort::Error::result_from_status(status) }
}
