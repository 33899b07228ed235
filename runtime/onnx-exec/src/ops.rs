//! The interface of a tensor library, [`TensorOps`].

use super::OpError;
use super::attention::attention_from_primitives;
use super::custom::CustomOperator;
use super::elementwise::{Elementwise, ElementwiseFunction};
use super::evaluate::scalar;
use super::generate::sums_by_doubling;
use super::indexing::{gather_elements_by_host, scatter_rows_from_primitives, top_indices_on_host};
use super::normalize::{batch_norm_from_primitives, rms_norm_from_primitives};
pub use super::parameters::{
    Binary, Bitwise, Conv, ConvEpilogue, PadMode, Pool, Reduce, ReducedOutputs, Unary, Update,
};
use super::rotary::rotate_from_primitives;
pub use super::tensor_scatter::ScatterAxis;
use super::tensor_scatter::tensor_scatter_on_host;
use flagperf_onnx::{DType, Tensor, from_e4m3};

/// The operations that the executor requires from a tensor library. Shapes are NCHW, axes count from the front and are
/// in range, and elementwise operations broadcast under NumPy's rules. An operation that is not possible is an error,
/// never a different result.
pub trait TensorOps: Send + Sync {
    /// A tensor of the library. Cloning shares its memory.
    type Tensor: Clone + Send;

    /// Returns the library's name in messages.
    fn name(&self) -> &'static str;
    /// Returns the supported element types.
    fn dtypes(&self) -> &'static [DType];
    /// Returns whether the executor may fuse nodes for speed, for example a batch normalization into the preceding
    /// convolution.
    fn supports_fusion(&self) -> bool {
        true
    }

    /// Converts a host tensor to a tensor of the library.
    fn upload(&self, tensor: &Tensor) -> Result<Self::Tensor, OpError>;
    /// Copies a tensor of the library to the host as `dtype`, the type declared by the graph. The library may store
    /// another type, for example u8 for bool.
    fn download(&self, tensor: &Self::Tensor, dtype: DType) -> Result<Tensor, OpError>;
    /// Returns the sizes, outermost first.
    fn shape(&self, tensor: &Self::Tensor) -> Vec<usize>;
    /// Returns the element type as it is stored.
    fn dtype(&self, tensor: &Self::Tensor) -> DType;

    /// Applies an elementwise function.
    fn unary(&self, kind: Unary, x: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// Applies an elementwise function of two tensors.
    fn binary(&self, kind: Binary, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// Combines the bits of integers of one type; `None` if the library leaves this to the host. `b` is `None` for
    /// [`Bitwise::Not`].
    fn bitwise(
        &self,
        kind: Bitwise,
        a: &Self::Tensor,
        b: Option<&Self::Tensor>,
    ) -> Option<Result<Self::Tensor, OpError>> {
        let _ = (kind, a, b);
        None
    }
    /// Returns `x` with zeros below a diagonal of its last two dimensions, or above it if `upper` is false; `None` if the library
    /// leaves this to the host. Diagonals are counted upwards from the main one.
    fn triangle(&self, x: &Self::Tensor, diagonal: i64, upper: bool) -> Option<Result<Self::Tensor, OpError>> {
        let _ = (x, diagonal, upper);
        None
    }
    /// Returns how often a `Loop` runs at most: a graph from elsewhere may have one without an end.
    fn iterations_max(&self) -> i64 {
        i64::MAX
    }
    /// Returns whether the library draws random numbers for [`TensorOps::drop_elements`].
    fn draws(&self) -> bool {
        false
    }
    /// Sets elements to zero, each with the probability `ratio` and independently of all others, and divides the others by `1 - ratio`.
    fn drop_elements(&self, x: &Self::Tensor, ratio: f64) -> Result<Self::Tensor, OpError> {
        let _ = (x, ratio);
        Err(OpError::unsupported("random numbers"))
    }
    /// Selects `a` where `condition` is true, else `b`.
    fn select(&self, condition: &Self::Tensor, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// Returns `a + b · factor`. `factor` has the element type of `b`.
    fn add_scaled(&self, a: &Self::Tensor, b: &Self::Tensor, factor: f64) -> Result<Self::Tensor, OpError> {
        self.binary(Binary::Add, a, &self.binary(Binary::Mul, b, &scalar(self, factor, b)?)?)
    }
    /// Returns `a + b · c`, or `a - b · c` if `subtract` is true.
    fn multiply_add(
        &self,
        a: &Self::Tensor,
        b: &Self::Tensor,
        c: &Self::Tensor,
        subtract: bool,
    ) -> Result<Self::Tensor, OpError> {
        self.binary(if subtract { Binary::Sub } else { Binary::Add }, a, &self.binary(Binary::Mul, b, c)?)
    }
    /// Returns `silu(gate) · x`.
    fn silu_product(&self, gate: &Self::Tensor, x: &Self::Tensor) -> Result<Self::Tensor, OpError> {
        self.binary(Binary::Mul, &self.unary(Unary::Silu, gate)?, x)
    }
    /// Returns whether the library compiles an operation, so that the executor fuses it with others for [`TensorOps::elementwise`].
    fn compiles(&self, operation: Elementwise) -> bool {
        let _ = operation;
        false
    }
    /// Applies a function to the elements of tensors.
    fn elementwise(&self, function: &ElementwiseFunction, inputs: &[Self::Tensor]) -> Result<Self::Tensor, OpError> {
        function.apply(self, inputs)
    }
    /// Returns whether the executor may compute several products of one tensor and constant matrices as one product.
    fn merges_products(&self) -> bool {
        false
    }
    /// Returns whether the library has an operator of another domain than the standard's.
    fn has_custom(&self, operator: &CustomOperator) -> bool {
        let _ = operator;
        false
    }
    /// Applies an operator of another domain. Omitted inputs are `None`.
    fn custom(&self, operator: &CustomOperator, inputs: &[Option<Self::Tensor>]) -> Result<Vec<Self::Tensor>, OpError> {
        let _ = inputs;
        Err(OpError::unsupported(format!("the operator `{}`", operator.full_name())))
    }
    /// Multiplies matrices over the last two dimensions and broadcasts the others. Both tensors have at least two.
    fn matmul(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, OpError>;
    /// Returns the product in i32 of two matrices of i8.
    fn integer_product(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor, OpError> {
        self.matmul(&self.cast(a, DType::I32)?, &self.cast(b, DType::I32)?)
    }
    /// Returns `x · weightᵀ` in bf16 of two matrices of numbers in FP8 (E4M3), whose bits are u8.
    fn float8_product(&self, x: &Self::Tensor, weight: &Self::Tensor) -> Result<Self::Tensor, OpError> {
        let number = |tensor| {
            let bits = self.download(tensor, DType::U8)?;
            let numbers = bits.bytes().iter().map(|bits| from_e4m3(*bits)).collect();
            let numbers =
                Tensor::from_vec(bits.shape(), numbers).map_err(|e| OpError::invalid_operands(e.to_string()))?;
            self.upload(&numbers)
        };
        self.cast(&self.matmul(&number(x)?, &self.permute(&number(weight)?, &[1, 0])?)?, DType::BF16)
    }
    /// Returns `x · weight + bias`: `x` is `…,K`, `weight` is `K,N`, `bias` is `N`.
    fn linear(&self, x: &Self::Tensor, weight: &Self::Tensor, bias: &Self::Tensor) -> Result<Self::Tensor, OpError> {
        self.binary(Binary::Add, &self.matmul(x, weight)?, bias)
    }
    /// Returns `max(x · weight + bias, 0)`.
    fn linear_relu(
        &self,
        x: &Self::Tensor,
        weight: &Self::Tensor,
        bias: &Self::Tensor,
    ) -> Result<Self::Tensor, OpError> {
        self.unary(Unary::Relu, &self.linear(x, weight, bias)?)
    }
    /// Scaled dot-product attention, `softmax(q · kᵀ · scale + mask) · v` with the softmax over the last axis: equation
    /// 1 of Vaswani et al. 2017, "Attention Is All You Need", and ONNX's operator `Attention`. `q` is `…,L,E`, `k` is
    /// `…,S,E`, `v` is `…,S,Ev`; their leading dimensions are broadcast. `mask` broadcasts to the scores, `…,L,S`. The
    /// result is `…,L,Ev`. In a row that the mask hides completely (only -∞), the result depends on the library: NaN or
    /// zeros.
    fn attention(
        &self,
        q: &Self::Tensor,
        k: &Self::Tensor,
        v: &Self::Tensor,
        mask: Option<&Self::Tensor>,
        scale: f64,
    ) -> Result<Self::Tensor, OpError> {
        attention_from_primitives(self, q, k, v, mask, scale)
    }
    /// Computes a two-dimensional convolution. `weight` is `out,in/groups,height,width`, `bias` is `out`.
    fn conv(
        &self,
        x: &Self::Tensor,
        weight: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        conv: &Conv,
    ) -> Result<Self::Tensor, OpError>;
    /// Computes a convolution, adds the residual of the epilogue, if any, and applies its activation, if any.
    fn conv_fused(
        &self,
        x: &Self::Tensor,
        weight: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        conv: &Conv,
        epilogue: ConvEpilogue<'_, Self::Tensor>,
    ) -> Result<Self::Tensor, OpError> {
        epilogue.apply(self, self.conv(x, weight, bias, conv)?)
    }
    /// Computes the largest element of each window. Padding is ignored.
    fn max_pool(&self, x: &Self::Tensor, pool: &Pool) -> Result<Self::Tensor, OpError>;
    /// Computes the mean of each window.
    fn average_pool(&self, x: &Self::Tensor, pool: &Pool) -> Result<Self::Tensor, OpError>;
    /// Normalizes each channel, dimension 1, with the mean and the biased variance of its elements; then multiplies by `scale` and
    /// adds `bias`. Returns the result, the mean and the variance, the latter two in the type of `scale`.
    fn batch_norm(
        &self,
        x: &Self::Tensor,
        scale: &Self::Tensor,
        bias: &Self::Tensor,
        epsilon: f64,
    ) -> Result<[Self::Tensor; 3], OpError> {
        batch_norm_from_primitives(self, x, scale, bias, epsilon)
    }
    /// Returns tensors equal to `leaves`; until [`TensorOps::gradients`] is called, the library records what is computed of them.
    fn record(&self, leaves: &[Self::Tensor]) -> Result<Vec<Self::Tensor>, OpError> {
        let _ = leaves;
        Err(OpError::unsupported("differentiation by the tensor library"))
    }
    /// Returns the gradients of `loss`, which has one element, with respect to tensors that [`TensorOps::record`] returned. The gradients
    /// in each list of `reduced` are replaced by their means over the processes.
    fn gradients(
        &self,
        loss: &Self::Tensor,
        leaves: &[Self::Tensor],
        reduced: &[ReducedOutputs],
    ) -> Result<Vec<Self::Tensor>, OpError> {
        let _ = (loss, leaves, reduced);
        Err(OpError::unsupported("differentiation by the tensor library"))
    }
    /// Returns the mean of each tensor over all processes of the group, which call this in the same order with tensors of the same shapes
    /// and types. With a `root`, only the process with this number gets the means, and what the others get is not read.
    fn all_reduce(&self, tensors: &[Self::Tensor], root: Option<u32>) -> Result<Vec<Self::Tensor>, OpError> {
        let _ = (tensors, root);
        Err(OpError::unsupported("a training by several processes"))
    }
    /// Returns the tensors of the process with the number `root` of the group, as [`TensorOps::all_reduce`] does the means.
    fn broadcast(&self, tensors: &[Self::Tensor], root: u32) -> Result<Vec<Self::Tensor>, OpError> {
        let _ = (tensors, root);
        Err(OpError::unsupported("a training by several processes"))
    }
    /// Returns the root of the sum of the squares of all elements of tensors: one f32 number.
    fn norm(&self, tensors: &[Self::Tensor]) -> Result<Self::Tensor, OpError> {
        let _ = tensors;
        Err(OpError::unsupported("norms of several tensors by the tensor library"))
    }
    /// Updates parameters, and what the optimizer remembers of them, in place.
    fn update(&self, update: &Update<'_, Self::Tensor>) -> Result<(), OpError> {
        let _ = update;
        Err(OpError::unsupported("updates by the tensor library"))
    }
    /// Reduces over `axes`, each of which remains with size 1.
    fn reduce(&self, kind: Reduce, x: &Self::Tensor, axes: &[usize]) -> Result<Self::Tensor, OpError>;
    /// Returns the sum of the squares over `axes`, each of which remains with size 1.
    fn sum_of_squares(&self, x: &Self::Tensor, axes: &[usize]) -> Result<Self::Tensor, OpError> {
        self.reduce(Reduce::Sum, &self.binary(Binary::Mul, x, x)?, axes)
    }
    /// Returns the index (i64) of the largest element along `axis`, which remains with size 1. Of equal elements, it is
    /// the index of the first, or of the last if `last` is true.
    fn arg_max(&self, x: &Self::Tensor, axis: usize, last: bool) -> Result<Self::Tensor, OpError>;
    /// Returns the index (i64) of the smallest element along `axis`, as [`TensorOps::arg_max`] does of the largest.
    fn arg_min(&self, x: &Self::Tensor, axis: usize, last: bool) -> Result<Self::Tensor, OpError> {
        self.arg_max(&self.unary(Unary::Neg, x)?, axis, last)
    }
    /// Returns the indices (i64) of the `count` largest elements along `axis`, or smallest ones, the best first. Of equal
    /// elements, the first comes first; NaN is larger than every number.
    fn top_indices(&self, x: &Self::Tensor, axis: usize, count: usize, largest: bool) -> Result<Self::Tensor, OpError> {
        top_indices_on_host(self, x, axis, count, largest)
    }
    /// Returns the elements of `x` whose index along `axis` is given by `indices` and whose other coordinates are those of the
    /// index. Negative indices count from the end.
    fn gather_elements(&self, x: &Self::Tensor, indices: &Self::Tensor, axis: usize) -> Result<Self::Tensor, OpError>
    where
        Self: Sized,
    {
        gather_elements_by_host(self, x, indices, axis)
    }
    /// Returns the elements at [`TensorOps::top_indices`], and these indices.
    fn top(&self, x: &Self::Tensor, axis: usize, count: usize, largest: bool) -> Result<[Self::Tensor; 2], OpError>
    where
        Self: Sized,
    {
        let indices = self.top_indices(x, axis, count, largest)?;
        Ok([self.gather_elements(x, &indices, axis)?, indices])
    }
    /// Returns the sums of all elements up to each one along `axis`.
    fn cumulative_sum(&self, x: &Self::Tensor, axis: usize) -> Result<Self::Tensor, OpError> {
        sums_by_doubling(self, x, axis)
    }
    /// Combines rows of `updates` with rows of `x`: update `i` changes row `rows[i]`. The first dimension counts the
    /// rows; there are as many `rows` as updates, all in range. Without a `combination`, the last update of a row
    /// replaces it.
    fn scatter_rows(
        &self,
        x: &Self::Tensor,
        rows: &[usize],
        updates: &Self::Tensor,
        combination: Option<Binary>,
    ) -> Result<Self::Tensor, OpError> {
        scatter_rows_from_primitives(self, x, rows, updates, combination)
    }
    /// Writes `update` into `cache`, from the index in `first` (one for each entry of the first dimension) on, or from the first entry
    /// on. If `in_place` is true, nothing else reads the cache, and it may be overwritten.
    fn tensor_scatter(
        &self,
        cache: Self::Tensor,
        update: &Self::Tensor,
        first: Option<&Self::Tensor>,
        along: ScatterAxis,
        in_place: bool,
    ) -> Result<Self::Tensor, OpError> {
        let _ = in_place;
        tensor_scatter_on_host(self, &cache, update, first, along)
    }
    /// Computes the softmax along `axis`, or its logarithm.
    fn softmax(&self, x: &Self::Tensor, axis: usize, log: bool) -> Result<Self::Tensor, OpError>;
    /// Normalizes over the dimensions from `axis` on, then multiplies by `scale` and adds `bias`.
    fn layer_norm(
        &self,
        x: &Self::Tensor,
        scale: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        axis: usize,
        epsilon: f64,
    ) -> Result<Self::Tensor, OpError>;
    /// Divides by the root of the mean of the squares over the dimensions from `axis` on, then multiplies by `scale`.
    fn rms_norm(
        &self,
        x: &Self::Tensor,
        scale: &Self::Tensor,
        axis: usize,
        epsilon: f64,
    ) -> Result<Self::Tensor, OpError> {
        rms_norm_from_primitives(self, x, scale, axis, epsilon)
    }
    /// Rotates pairs of elements of the last of four dimensions by angles, whose cosines and sines are `batch,rows,1,pairs`. The
    /// elements of a pair are adjacent if `interleaved` is true, else half the width apart.
    fn rotate(
        &self,
        x: &Self::Tensor,
        cos: &Self::Tensor,
        sin: &Self::Tensor,
        interleaved: bool,
    ) -> Result<Self::Tensor, OpError> {
        rotate_from_primitives(self, x, [cos, sin], interleaved)
    }

    /// Returns the same elements, in row-major order, with another shape.
    fn reshape(&self, x: &Self::Tensor, shape: &[usize]) -> Result<Self::Tensor, OpError>;
    /// Permutes the dimensions: dimension `i` of the result is dimension `order[i]` of `x`.
    fn permute(&self, x: &Self::Tensor, order: &[usize]) -> Result<Self::Tensor, OpError>;
    /// Concatenates tensors along `axis`.
    fn concat(&self, parts: &[Self::Tensor], axis: usize) -> Result<Self::Tensor, OpError>;
    /// Returns `count` entries along `axis`, beginning at `start`, every `step`-th. `step` is not zero; if it is
    /// negative, the order is reversed.
    fn slice(
        &self,
        x: &Self::Tensor,
        axis: usize,
        start: usize,
        count: usize,
        step: i64,
    ) -> Result<Self::Tensor, OpError>;
    /// Returns the entries of `x` along `axis` at `indices`, whose shape replaces the axis. Negative indices count from
    /// the end.
    fn gather(&self, x: &Self::Tensor, indices: &Self::Tensor, axis: usize) -> Result<Self::Tensor, OpError>;
    /// Repeats dimensions of size 1 up to `shape`, which has at least as many dimensions as `x`.
    fn expand(&self, x: &Self::Tensor, shape: &[usize]) -> Result<Self::Tensor, OpError>;
    /// Adds `pads[i].0` entries before and `pads[i].1` after along dimension `i`.
    fn pad(&self, x: &Self::Tensor, pads: &[(usize, usize)], mode: PadMode) -> Result<Self::Tensor, OpError>;
    /// Converts the numbers to another element type. Floats are truncated to integers; every number except zero is
    /// true.
    fn cast(&self, x: &Self::Tensor, dtype: DType) -> Result<Self::Tensor, OpError>;
}

impl<T> ConvEpilogue<'_, T> {
    /// Adds the residual to the result of a convolution and applies the activation, each in a new tensor.
    ///
    /// # Errors
    /// Those of the tensor library.
    pub fn apply<O: TensorOps<Tensor = T> + ?Sized>(&self, ops: &O, y: T) -> Result<T, OpError> {
        let sum = match self.residual {
            Some(residual) => ops.binary(Binary::Add, &y, residual)?,
            None => y,
        };
        match self.activation {
            Some(activation) => ops.unary(activation, &sum),
            None => Ok(sum),
        }
    }
}
