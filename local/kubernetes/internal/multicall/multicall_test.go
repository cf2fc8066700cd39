package multicall

import (
	"slices"
	"testing"
)

func TestSelect(t *testing.T) {
	names := []string{"kubectl", "kubelet"}
	for _, c := range []struct{ args, want []string }{
		{[]string{"kubectl"}, []string{"kubectl"}},
		{[]string{"/opt/bin/kubectl", "get", "pods"}, []string{"kubectl", "get", "pods"}},
		{[]string{"./kube", "kubelet", "--v=2"}, []string{"kubelet", "--v=2"}},
		{[]string{"kubectl", "kubelet"}, []string{"kubectl", "kubelet"}},
		{[]string{"kube", "bin/kubelet"}, nil},
		{[]string{"kube", "--v=2", "kubelet"}, nil},
		{[]string{"kube", "unknown"}, nil},
		{[]string{"kube"}, nil},
		{nil, nil},
	} {
		if got := Select(c.args, names); !slices.Equal(got, c.want) {
			t.Errorf("Select(%q) = %q, want %q", c.args, got, c.want)
		}
	}
}
