// Means over a group of processes, with the collectives of libtorch (c10d): Gloo on the CPU, NCCL on CUDA devices.

#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/ScalarOps.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "catch_error.hpp"
#include "group.hpp"

namespace {

// Tensors in one block of memory.
struct Block {
    explicit Block(const std::vector<at::Tensor> &shapes) {
        int64_t count = 0;
        for (const auto &shape : shapes) {
            count += shape.numel();
        }
        memory = at::empty({count}, shapes[0].options());
        int64_t offset = 0;
        for (const auto &shape : shapes) {
            views.push_back(memory.narrow(0, offset, shape.numel()).view(shape.sizes()));
            offset += shape.numel();
        }
    }

    at::Tensor memory;
    std::vector<at::Tensor> views;
};

// Tensors that are reduced together.
class Bucket {
public:
    // `root` is the process that needs the means, or -1 if all do.
    Bucket(const Group &group, const std::vector<at::Tensor> &shapes, int root)
        : group_(group), root_(root), block_(shapes), missing_(shapes.size()) {}

    // Sets a tensor; the last one starts the reduction.
    void set(size_t index, const at::Tensor &value) {
        // Gloo has no mean. Division first keeps sums of large gradients finite.
        at::div_out(block_.views[index], value, at::native::wrapped_scalar_tensor(group_.size));
        if (--missing_ == 0) {
            std::vector<at::Tensor> tensors{block_.memory};
            if (root_ < 0) {
                work_ = group_.backend->allreduce(tensors);
            } else {
                c10d::ReduceOptions options;
                options.rootRank = root_;
                work_ = group_.backend->reduce(tensors, options);
            }
        }
    }

    // The tensors, which the reduction overwrites.
    const at::Tensor &at(size_t index) const { return block_.views[index]; }

    // Waits for the reduction: on a CUDA device, lets what follows on this stream wait.
    void wait() {
        TORCH_CHECK(work_, "a gradient is missing: the loss does not depend on it");
        work_->wait();
    }

private:
    const Group &group_;
    int root_;
    Block block_;
    c10::intrusive_ptr<c10d::Work> work_;
    size_t missing_;
};

// Returns the means of tensors over the group: in the process `root` alone unless it is -1.
std::vector<at::Tensor> reduce(const Group &group, const std::vector<at::Tensor> &tensors, int root) {
    c10::NoGradGuard no_gradient;
    Bucket bucket(group, tensors, root);
    for (size_t i = 0; i < tensors.size(); i++) {
        bucket.set(i, tensors[i]);
    }
    bucket.wait();
    std::vector<at::Tensor> means;
    for (size_t i = 0; i < tensors.size(); i++) {
        means.push_back(bucket.at(i).detach());
    }
    return means;
}

// Means whose gradients are the means of the gradients over the group. All processes differentiate the same graph, and therefore in the
// same order.
class MeanOverProcesses : public torch::autograd::Function<MeanOverProcesses> {
public:
    static torch::autograd::variable_list forward(torch::autograd::AutogradContext *context, at::TensorList tensors, const Group *group) {
        context->saved_data["group"] = reinterpret_cast<int64_t>(group);
        return reduce(*group, tensors.vec(), -1);
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext *context, torch::autograd::variable_list gradients) {
        auto *group = reinterpret_cast<const Group *>(context->saved_data["group"].toInt());
        auto means = reduce(*group, gradients, -1);
        // The group has no gradient.
        means.emplace_back();
        return means;
    }
};

} // namespace

extern "C" {

// Joins a group: rank 0 listens at the port, the others connect to it. `own` is the address of this host by which the others reach it.
// Waits until all have joined. `on_device` is null for the CPU.
// `socket` is that at which rank 0 listens, or -1; `times_ms` are the longest waits for the others and for a collective.
const char *flagperf_group_join(const char *id, const char *host, uint16_t port, int socket, int rank, int size, const char *own,
                                const int64_t *times_ms, JoinOnDevice on_device, Group **group) {
    return catch_error([&] {
        auto join_ms = times_ms[0], collective_ms = times_ms[1];
        c10d::TCPStoreOptions options;
        options.port = port;
        options.isServer = rank == 0;
        if (socket >= 0) {
            options.masterListenFd = socket;
        }
        options.numWorkers = static_cast<std::size_t>(size);
        options.timeout = std::chrono::milliseconds(join_ms);
        c10::intrusive_ptr<c10d::Store> server = c10::make_intrusive<c10d::TCPStore>(host, options);
        c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::PrefixStore>(id, server);
        c10::intrusive_ptr<c10d::Backend> backend;
        if (on_device != nullptr) {
            const char *error = nullptr;
            auto *joined = on_device(store.get(), rank, size, collective_ms, &error);
            TORCH_CHECK(joined != nullptr, error);
            backend = c10::intrusive_ptr<c10d::Backend>::reclaim(joined);
        } else {
            auto gloo = c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(collective_ms));
            gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(own));
            backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, gloo);
        }
        *group = new Group{store, backend, size};
    });
}

void flagperf_group_leave(Group *group) { delete group; }

// Writes the means of `count` tensors over the group, in the process `root` alone unless it is -1. Those for all processes can be
// differentiated if this thread records.
const char *flagperf_all_reduce(const Group *group, int root, const at::Tensor *const *tensors, size_t count, at::Tensor **means) {
    return catch_error([&] {
        std::vector<at::Tensor> inputs;
        for (size_t i = 0; i < count; i++) {
            inputs.push_back(*tensors[i]);
        }
        auto results = c10::GradMode::is_enabled() ? MeanOverProcesses::apply(at::TensorList(inputs), group)
                                                    : reduce(*group, inputs, root);
        for (size_t i = 0; i < count; i++) {
            means[i] = new at::Tensor(results[i]);
        }
    });
}

// Writes the tensors of the process `root`: views of one block of memory.
const char *flagperf_broadcast(const Group *group, int root, const at::Tensor *const *tensors, size_t count, at::Tensor **sent) {
    return catch_error([&] {
        c10::NoGradGuard no_gradient;
        std::vector<at::Tensor> inputs;
        for (size_t i = 0; i < count; i++) {
            inputs.push_back(*tensors[i]);
        }
        Block block(inputs);
        if (group->backend->getRank() == root) {
            for (size_t i = 0; i < count; i++) {
                block.views[i].copy_(inputs[i], true);
            }
        }
        c10d::BroadcastOptions options;
        options.rootRank = root;
        std::vector<at::Tensor> memory{block.memory};
        group->backend->broadcast(memory, options)->wait();
        for (size_t i = 0; i < count; i++) {
            sent[i] = new at::Tensor(block.views[i].detach());
        }
    });
}

// Writes the gradients of a loss with respect to `count` leaves. Those of each bucket are replaced by their means over the group, which
// are computed while the gradients of other buckets are. `bucket_of` has the number of the bucket of each leaf, or -1; `roots` has the process
// that needs the means of each bucket, or -1 if all do.
const char *flagperf_reduced_gradients(const Group *group, const at::Tensor *loss, const at::Tensor *const *leaves,
                                       const int64_t *bucket_of, const int *roots, size_t count, at::Tensor **gradients) {
    return catch_error([&] {
        struct Place {
            size_t bucket;
            size_t index;
        };
        std::vector<std::vector<at::Tensor>> members;
        std::vector<Place> places(count);
        std::vector<at::Tensor> inputs;
        for (size_t i = 0; i < count; i++) {
            inputs.push_back(*leaves[i]);
            if (bucket_of[i] >= 0) {
                auto bucket = static_cast<size_t>(bucket_of[i]);
                members.resize(std::max(members.size(), bucket + 1));
                places[i] = {bucket, members[bucket].size()};
                members[bucket].push_back(leaves[i]->detach());
            }
        }
        std::vector<Bucket> buckets;
        for (size_t i = 0; i < members.size(); i++) {
            buckets.emplace_back(*group, members[i], roots[i]);
        }
        for (size_t i = 0; i < count; i++) {
            if (bucket_of[i] >= 0) {
                // The result takes the place of the gradient, whose memory is then free.
                inputs[i].register_hook([&buckets, place = places[i]](at::Tensor gradient) -> at::Tensor {
                    c10::NoGradGuard no_gradient;
                    buckets[place.bucket].set(place.index, gradient);
                    return buckets[place.bucket].at(place.index);
                });
            }
        }
        auto computed = torch::autograd::grad({*loss}, inputs);
        for (auto &bucket : buckets) {
            bucket.wait();
        }
        for (size_t i = 0; i < count; i++) {
            gradients[i] = new at::Tensor(computed[i]);
        }
    });
}
}
