/* cuda_graph.c - decode steps captured once and replayed: one graph for each bucket of sequences and of positions.
 *
 * What a launch depends on is the bucket (tokens, a power of two), the longest sequence (a power of two), and the configuration,
 * which stays. All else is read by the kernels from hr_cuda_batch, in device memory. */
#include "engine/cuda/cuda_state.h"

static hr_cuda_graph *find(hr_cuda *g) {
    for (int i = 0; i < HR_CUDA_GRAPHS; i++)
        if (g->graphs[i].n == g->n && g->graphs[i].max_len == g->max_len && g->graphs[i].exec) return &g->graphs[i];
    return NULL;
}

void hr_cuda_graph_begin(hr_engine *e, bool wanted) {
    hr_cuda *g = e->cuda;
    g->mode = HR_CUDA_LAUNCH;
    if (!wanted || g->status != HR_OK) return;
    if (find(g)) {
        g->mode = HR_CUDA_REPLAY;
        return;
    }
    if (HR_CUDA_DO(g, cuStreamBeginCapture(g->stream, CU_STREAM_CAPTURE_MODE_RELAXED))) g->mode = HR_CUDA_CAPTURE;
}

static void drop(hr_cuda *g, hr_cuda_graph *graph) {
    if (graph->exec) g->d->cuGraphExecDestroy(graph->exec);
    *graph = (hr_cuda_graph){0};
}

/* The capture ends in any case: a stream that is left in it is of no use. */
static hr_cuda_graph *finish_capture(hr_cuda *g) {
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    const CUresult ended = g->d->cuStreamEndCapture(g->stream, &graph);
    if (g->status == HR_OK) hr_cuda_did(g, ended, "cuStreamEndCapture");
    if (g->status == HR_OK) hr_cuda_did(g, g->d->cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
    if (graph) g->d->cuGraphDestroy(graph);
    if (g->status != HR_OK) return NULL;
    hr_cuda_graph *slot = &g->graphs[g->graph_next];
    g->graph_next = (g->graph_next + 1) % HR_CUDA_GRAPHS;
    drop(g, slot);
    *slot = (hr_cuda_graph){.n = g->n, .max_len = g->max_len, .exec = exec, .last_kernel = g->last_kernel};
    return slot;
}

void hr_cuda_graph_end(hr_cuda *g) {
    if (g->mode == HR_CUDA_LAUNCH) return;
    const hr_cuda_graph *graph = g->mode == HR_CUDA_CAPTURE ? finish_capture(g) : find(g);
    g->mode = HR_CUDA_LAUNCH;
    if (!graph || g->status != HR_OK) return;
    g->last_kernel = graph->last_kernel;
    (void)HR_CUDA_DO(g, cuGraphLaunch(graph->exec, g->stream));
}

void hr_cuda_graphs_close(hr_cuda *g) {
    for (int i = 0; i < HR_CUDA_GRAPHS; i++) drop(g, &g->graphs[i]);
}
