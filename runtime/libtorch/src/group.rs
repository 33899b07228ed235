//! The group of processes that train a model together, through `group.cpp`: one of a process, which its sessions share.

use std::ffi::{CString, c_char, c_int, c_void};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::IntoRawFd;
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flagperf_onnx_exec::{OpError, ReducedOutputs};
use flagperf_plugin::Error;
use serde::Deserialize;
use tch::{Device, Tensor};

use crate::capture;
use crate::shim::{address, check};
use crate::tensor::TorchTensor;

unsafe extern "C" {
    fn flagperf_group_join(
        id: *const c_char,
        host: *const c_char,
        port: u16,
        socket: c_int,
        rank: c_int,
        size: c_int,
        own: *const c_char,
        times_ms: *const i64,
        on_device: *const c_void,
        group: *mut *mut c_void,
    ) -> *const c_char;
    fn flagperf_group_leave(group: *mut c_void);
    fn flagperf_all_reduce(
        group: *const c_void,
        root: c_int,
        tensors: *const *const c_void,
        count: usize,
        means: *mut *mut c_void,
    ) -> *const c_char;
    fn flagperf_broadcast(
        group: *const c_void,
        root: c_int,
        tensors: *const *const c_void,
        count: usize,
        sent: *mut *mut c_void,
    ) -> *const c_char;
    fn flagperf_reduced_gradients(
        group: *const c_void,
        loss: *const c_void,
        leaves: *const *const c_void,
        bucket_of: *const i64,
        roots: *const c_int,
        count: usize,
        gradients: *mut *mut c_void,
    ) -> *const c_char;
}

/// How to join a group: the option `process_group`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupOptions {
    /// Number of this process, from 0.
    rank: u32,
    /// Number of processes.
    size: u32,
    /// Distinguishes the group from others that use the port.
    id: String,
    /// The host of rank 0, and the port at which it listens.
    master_address: String,
    master_port: u16,
    /// A host of the group other than this one; that of rank 0 if there is none.
    peer_address: String,
    /// The address of this host to use; `None` selects that of the route to the peer.
    #[serde(default)]
    own_address: Option<String>,
}

/// Longest wait for the other processes, which the host starts at the same time, and for a collective: the default of PyTorch, because
/// one process may write a checkpoint while the others wait. The host ends the others earlier when a process fails.
const JOIN_MS: i64 = 120_000;
const COLLECTIVE_MS: i64 = 1_800_000;

impl GroupOptions {
    /// Returns the address of this host by which the peer reaches it: the given one, or that of the network card with the route to the
    /// peer.
    fn own_address(&self) -> std::io::Result<String> {
        if let Some(own) = &self.own_address {
            return Ok(own.clone());
        }
        // Connecting a socket for datagrams sends nothing.
        let connect = |any: &str| {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect((self.peer_address.as_str(), self.master_port))?;
            socket.local_addr().map(|own| own.ip().to_string())
        };
        connect("0.0.0.0").or_else(|_| connect("::"))
    }

    /// Returns the socket at which rank 0 waits for the others, at its own address alone: a group on one host is reached from nowhere
    /// else. `None` for another rank.
    fn listen(&self, own: &str) -> Result<Option<TcpListener>, Error> {
        if self.rank > 0 {
            return Ok(None);
        }
        TcpListener::bind((own, self.master_port)).map(Some).map_err(|error| {
            let port = self.master_port;
            Error::Failed(format!(
                "rank 0 cannot wait for the others at `{own}`, port {port}: {error} (`MASTER_PORT` in host.yaml names another port)"
            ))
        })
    }
}

/// A group that this process has joined.
pub struct Group {
    handle: NonNull<c_void>,
    options: GroupOptions,
}

// SAFETY: the collectives of a group may be used from any thread; the host computes one step at a time.
unsafe impl Send for Group {}
// SAFETY: as for `Send`.
unsafe impl Sync for Group {}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: created once, freed once.
        unsafe { flagperf_group_leave(self.handle.as_ptr()) };
    }
}

impl Group {
    /// Returns the group, which all its processes join at the same time. A second session uses that of the first.
    ///
    /// # Errors
    /// When a process does not join within the time limit, or the port of rank 0 is in use.
    pub fn join(options: &GroupOptions, device: Device) -> Result<Arc<Group>, Error> {
        static JOINED: Mutex<Weak<Group>> = Mutex::new(Weak::new());
        let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = joined.upgrade().filter(|group| group.options == *options) {
            return Ok(group);
        }
        let GroupOptions { rank, size, id, master_address, master_port, peer_address, .. } = options;
        let own = options.own_address().map_err(|error| {
            Error::Failed(format!("the host `{peer_address}` of the process group has no address: {error}"))
        })?;
        let listener = options.listen(&own)?;
        let on_device = match device {
            Device::Cpu => null(),
            _ => capture::functions()?.nccl_join.ok_or_else(|| Error::Unavailable {
                reason: "this plug-in was built without the headers of NCCL, which several devices need".to_owned(),
                remedy: "run `flagperf backend install libtorch`, which builds it with them".to_owned(),
            })?,
        };
        let texts = [id.as_str(), master_address, &own].map(|text| CString::new(text).map_err(Error::failed));
        let [id, host, own] = texts;
        let (id, host, own, mut handle) = (id?, host?, own?, null_mut());
        // SAFETY: the texts live until the call returns, the function for the device has the expected signature, and the out-pointer is
        // valid.
        let result = unsafe {
            let (rank, size) = (*rank as c_int, *size as c_int);
            let (id, host, own, group) = (id.as_ptr(), host.as_ptr(), own.as_ptr(), &raw mut handle);
            let times = [JOIN_MS, COLLECTIVE_MS];
            // The store closes the socket.
            let socket = listener.map_or(-1, IntoRawFd::into_raw_fd);
            check(flagperf_group_join(
                id,
                host,
                *master_port,
                socket,
                rank,
                size,
                own,
                times.as_ptr(),
                on_device,
                group,
            ))
        };
        result.map_err(|error| {
            let reason = error.to_string();
            let reason = reason.lines().next().unwrap_or_default();
            Error::Failed(format!(
                "rank {rank} of {size} cannot join the others at `{master_address}`, port {master_port}: {reason}"
            ))
        })?;
        let handle = NonNull::new(handle).ok_or_else(|| Error::Failed("there is no process group".to_owned()))?;
        let group = Arc::new(Group { handle, options: options.clone() });
        *joined = Arc::downgrade(&group);
        Ok(group)
    }

    /// Returns the mean of each tensor over the processes, in the process `root` alone if there is one.
    pub fn all_reduce(&self, tensors: &[TorchTensor], root: Option<u32>) -> Result<Vec<TorchTensor>, OpError> {
        let inputs: Vec<*const c_void> = tensors.iter().map(address).collect();
        let mut means = vec![null_mut(); tensors.len()];
        // SAFETY: the tensors live until the call returns, which writes as many.
        unsafe {
            let (group, inputs, means) = (self.handle.as_ptr(), inputs.as_ptr(), means.as_mut_ptr());
            check(flagperf_all_reduce(group, root_or_all(root), inputs, tensors.len(), means)).map_err(lost_process)?;
        }
        Ok(means.into_iter().map(own).collect())
    }

    /// Returns the tensors of the process with the number `root`.
    pub fn broadcast(&self, tensors: &[TorchTensor], root: u32) -> Result<Vec<TorchTensor>, OpError> {
        let inputs: Vec<*const c_void> = tensors.iter().map(address).collect();
        let mut sent = vec![null_mut(); tensors.len()];
        let (inputs, out, root) = (inputs.as_ptr(), sent.as_mut_ptr(), root as c_int);
        // SAFETY: the tensors live until the call returns, which writes as many.
        unsafe {
            check(flagperf_broadcast(self.handle.as_ptr(), root, inputs, tensors.len(), out)).map_err(lost_process)?;
        }
        Ok(sent.into_iter().map(own).collect())
    }

    /// Returns the gradients of a loss. Those in each list of `reduced` are the means over the processes.
    pub fn gradients(
        &self,
        loss: &TorchTensor,
        leaves: &[TorchTensor],
        reduced: &[ReducedOutputs],
    ) -> Result<Vec<TorchTensor>, OpError> {
        let mut bucket_of = vec![-1; leaves.len()];
        for (bucket, list) in reduced.iter().enumerate() {
            list.places.iter().for_each(|place| bucket_of[*place] = bucket as i64);
        }
        let roots: Vec<c_int> = reduced.iter().map(|list| root_or_all(list.root)).collect();
        let inputs: Vec<*const c_void> = leaves.iter().map(address).collect();
        let mut gradients = vec![null_mut(); leaves.len()];
        let (inputs, buckets, roots, out) =
            (inputs.as_ptr(), bucket_of.as_ptr(), roots.as_ptr(), gradients.as_mut_ptr());
        // SAFETY: the tensors live until the call returns; all lists have the same length, but `roots` one number for each bucket.
        unsafe {
            let (group, loss) = (self.handle.as_ptr(), address(loss));
            check(flagperf_reduced_gradients(group, loss, inputs, buckets, roots, leaves.len(), out))
                .map_err(lost_process)?;
        }
        Ok(gradients.into_iter().map(own).collect())
    }
}

/// Adds what the host looks for in the errors of collectives: which process failed first, it knows itself.
fn lost_process(error: OpError) -> OpError {
    let text = error.to_string();
    let is_of_network = ["Connection", "connection", "Socket", "socket", "gloo", "NCCL", "Timed out", "timeout"];
    if !is_of_network.iter().any(|word| text.contains(word)) {
        return error;
    }
    let first = text.lines().next().unwrap_or_default();
    OpError::library(format!("another process of the group failed or cannot be reached: {first}"))
}

/// Returns the number of the process that needs means, or -1 if all do.
fn root_or_all(root: Option<u32>) -> c_int {
    root.map_or(-1, |root| root as c_int)
}

/// Takes a tensor that a function has written.
fn own(tensor: *mut c_void) -> TorchTensor {
    // SAFETY: after a success, nothing else owns the tensor.
    TorchTensor(unsafe { Tensor::from_ptr(tensor.cast()) })
}
