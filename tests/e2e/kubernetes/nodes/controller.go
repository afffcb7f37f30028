// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// syncEach brings every object of a kind on. One that changed meanwhile, or is gone, waits for the
// next time.
func syncEach[T any](
	ctx context.Context, objects dynamic.ResourceInterface, kind string,
	sync func(context.Context, *T) error,
) error {
	found, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing %ss: %w", kind, err)
	}
	for i := range found.Items {
		var one T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Items[i].Object, &one); err != nil {
			return err
		}
		if err := sync(ctx, &one); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s %s: %w", kind, found.Items[i].GetName(), err)
		}
	}
	return nil
}
