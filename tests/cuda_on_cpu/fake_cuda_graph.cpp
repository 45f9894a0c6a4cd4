// fake_cuda_graph.cpp - capture of a stream into a graph, and replay.
#include "tests/cuda_on_cpu/fake_cuda_state.hpp"

using namespace fake;

extern "C" {

CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
    HR_ENTER(cuStreamBeginCapture, CONTEXT);
    const auto s = the().streams.find(handle);
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!s || s->owner != in.dev) return CUDA_ERROR_INVALID_HANDLE;
    if (s->capturing) return CUDA_ERROR_ILLEGAL_STATE;
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    s->capturing = std::make_unique<capture>(capture{{}, mode, std::this_thread::get_id(), false});
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *out) {
    HR_ENTER(cuStreamEndCapture, CONTEXT | RELEASES);
    const auto s = the().streams.find(handle);
    if (!out || !s || s->owner != in.dev) return in.end(CUDA_ERROR_INVALID_HANDLE);
    *out = nullptr;
    if (!s->capturing) return in.end(CUDA_ERROR_ILLEGAL_STATE);
    if (s->capturing->mode != CU_STREAM_CAPTURE_MODE_RELAXED && s->capturing->thread != std::this_thread::get_id())
        return in.end(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    const std::unique_ptr<capture> c = std::move(s->capturing);
    if (c->invalid) return in.end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (in.result) return in.result;
    the().done.captures++;
    *out = the().graphs.add(std::make_shared<graph>(graph{in.dev, the().next_graph++, std::move(c->nodes)}));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags) {
    HR_ENTER(cuGraphInstantiate, CONTEXT);
    const auto g = the().graphs.find(handle);
    if (!out || !g) return CUDA_ERROR_INVALID_VALUE;
    if (flags & ~(unsigned long long)(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                      CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY))
        return CUDA_ERROR_INVALID_VALUE;
    *out = the().execs.add(std::make_shared<graph_exec>(graph_exec{g->owner, g->id, g->nodes}));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream where) {
    HR_ENTER(cuGraphLaunch, CONTEXT);
    const auto g = the().execs.find(handle);
    const auto s = stream_of(in.dev, where);
    if (!g || g->owner != in.dev || !s) return CUDA_ERROR_INVALID_HANDLE;
    the().done.graph_launches++;
    return put_nodes(in, s, g->nodes, g->id);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle) {
    HR_ENTER(cuGraphExecDestroy, CONTEXT | RELEASES);
    return in.end(the().execs.remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle) {
    HR_ENTER(cuGraphDestroy, CONTEXT | RELEASES);
    return in.end(the().graphs.remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

} // extern "C"
