package registrar

import (
	"context"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// event is something that the kubelet said through an offered socket.
type event struct {
	// offer is the number of the offer, so that an answer to an earlier one is not
	// taken for one to the socket in place.
	offer int
	// status is nil for GetInfo.
	status *registerapi.RegistrationStatus
}

// service is pluginregistration v1, as the kubelet calls it.
type service struct {
	registerapi.UnimplementedRegistrationServer
	info *registerapi.PluginInfo
	// tell gets what the kubelet said. It may wait, but not for the kubelet.
	tell func(*registerapi.RegistrationStatus)
}

// supportedVersions is what node-driver-registrar answers for any driver: it is the
// version of the kubelet's interface to plugins, not that of CSI.
func supportedVersions() []string { return []string{"1.0.0"} }

// GetInfo is the kubelet's question for the driver.
func (s *service) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	s.tell(nil)
	return s.info, nil
}

// NotifyRegistrationStatus is the kubelet's word on how the registration ended.
func (s *service) NotifyRegistrationStatus(_ context.Context, status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	s.tell(status)
	return &registerapi.RegistrationStatusResponse{}, nil
}
